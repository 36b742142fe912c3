"""No words of a library reach a caller: what is wrong is said with the field's name and the rule."""

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta, Struct

from shared.core.plain_words import find_json_fault, read_mistake


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Inner(Struct):
    share: Annotated[float, Meta(gt=0)] = 1
    colour: Annotated[Colour | None, Meta(description="Of the ink.")] = None


class Queue(Struct, tag_field="type", tag="amqp"):
    queue: str = ""


class Url(Struct, tag_field="type", tag="http", forbid_unknown_fields=True):
    url: str = ""


class Thing(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=3)]
    count: int | None = None
    inner: list[Inner] = []
    kind: Literal["a", "b"] = "a"
    target: Queue | Url | None = None
    within: Literal["never"] | Inner = "never"


@pytest.mark.parametrize(
    ("body", "told", "path"),
    [
        ("[]", "the body must be an object, not an array", ""),
        ("{}", "the field 'name' is needed", "name"),
        ('{"name":"x","nmae":1}', "there is no field 'nmae'; did you mean name?", "nmae"),
        (
            '{"name":"x","target":{"type":"http","ulr":1}}',
            "there is no field 'target.ulr'; did you mean url?",
            "target.ulr",
        ),
        ('{"name":"x","zzz":1}', "there is no field 'zzz'", "zzz"),
        ('{"name":1}', "name must be a string, not an integer", "name"),
        ('{"name":"long"}', "name must be a string of length <= 3", "name"),
        ('{"name":"x","count":"1"}', "count must be an integer, not a string", "count"),
        ('{"name":"x","inner":[{"share":0}]}', "inner[0].share must be a number > 0.0", "inner[0].share"),
        ('{"name":"x","kind":"c"}', "kind must be one of a, b, not 'c'", "kind"),
        (
            '{"name":"x","inner":[{"colour":"blue"}]}',
            "inner[0].colour must be one of red, green, not 'blue'",
            "inner[0].colour",
        ),
        (
            '{"name":"x","target":{"type":"webhook"}}',
            "target.type must be one of amqp, http, not 'webhook'",
            "target.type",
        ),
        ('{"name":"x","within":"late"}', "within must be one of never, an object, not 'late'", "within"),
    ],
)
def test_a_mistake_is_told_in_plain_words(body: str, told: str, path: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(body, type=Thing)
    assert read_mistake(str(refused.value), Thing) == (told, path)


def test_without_a_type_the_value_alone_is_told() -> None:
    assert read_mistake("Invalid enum value 'c' - at `$.kind`") == ("kind cannot be 'c'", "kind")
    assert read_mistake("Expected `int`, got `str`", int, subject="it") == ("it must be an integer, not a string", "")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "at line 1, column 1, a value is missing"),
        ("{'a': 1}", "at line 1, column 2, a key in double quotes is missing"),
        ('{\n"a": 1,}', "at line 2, column 8, a key in double quotes is missing"),
        ('{"a" 1}', "at line 1, column 6, a colon is missing"),
        ('{"a": 1 "b": 2}', "at line 1, column 9, a comma or a closing bracket is missing"),
        ('{"a": 1', "at line 1, column 8, a comma or a closing bracket is missing"),
        ('{"a": .5}', "at line 1, column 7, a value is missing"),
        ('{"a": "x', "at line 1, column 7, a string has no closing quote"),
        ('{"a": "x\n"}', "at line 1, column 9, a string contains a line end or a tab: write \\n or \\t"),
        ('{"a": "\\q"}', "at line 1, column 8, a backslash in a string escapes nothing: write two"),
        ('{"a": "\\u12"}', "at line 1, column 9, a backslash in a string escapes nothing: write two"),
        ("{} x", "at line 1, column 4, more text follows the value"),
        ("[NaN]", "NaN is not a value of JSON"),
        ("9" * 4_301, "a number in it has over 4,300 digits"),
        ("[" * 100_000, "it is nested too deeply"),
        ('"\\ud800"', "a text in it has half of a surrogate pair, such as \\ud800"),
    ],
)
def test_what_is_not_json_is_told_with_its_place(text: str, told: str) -> None:
    assert find_json_fault(text) == told
