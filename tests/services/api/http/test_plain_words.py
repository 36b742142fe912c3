"""No words of a library reach a caller: what is wrong is said with the field's name and the rule."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from services.api.http.plain_words import read_mistake


class Inner(Struct):
    share: Annotated[float, Meta(gt=0)] = 1


class Thing(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=3)]
    count: int | None = None
    inner: list[Inner] = []
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    ("body", "told", "path"),
    [
        ("[]", "the body must be an object, not an array", ""),
        ("{}", "the field 'name' is needed", "name"),
        ('{"name":"x","nmae":1}', "there is no field 'nmae'", "nmae"),
        ('{"name":1}', "name must be a string, not an integer", "name"),
        ('{"name":"long"}', "name must be a string of length <= 3", "name"),
        ('{"name":"x","count":"1"}', "count must be an integer, not a string", "count"),
        ('{"name":"x","inner":[{"share":0}]}', "inner[0].share must be a number > 0.0", "inner[0].share"),
        ('{"name":"x","kind":"c"}', "kind cannot be 'c'", "kind"),
    ],
)
def test_a_mistake_is_told_in_plain_words(body: str, told: str, path: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(body, type=Thing)
    assert read_mistake(str(refused.value)) == (told, path)
