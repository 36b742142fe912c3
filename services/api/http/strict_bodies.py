"""Bodies that are read strictly: one JSON value in UTF-8, in which a field that nobody knows is refused by its name,
case matters, and no type stands in for another. So do the routes that Marathon did not have."""

import json
from codecs import BOM_UTF8
from collections import Counter
from typing import TypeVar

import msgspec

from services.api.http.plain_words import read_mistake
from shared.domain.errors import Invalid

T = TypeVar("T")


def decode_body(content: bytes, decoder: msgspec.json.Decoder[T], *, is_checked_later: bool = False) -> T:
    """The body as the decoder's type. If each part of it `is_checked_later`, duplicate keys are found then. Raises
    `Invalid`, which names the field where there is one."""
    content = content.removeprefix(BOM_UTF8)
    try:
        content.decode()
        body = decoder.decode(content)
        if not is_checked_later:
            _check_keys(content)
        return body
    except UnicodeDecodeError:
        raise Invalid("the body is not UTF-8") from None
    except RecursionError:
        raise Invalid("the body is nested too deeply") from None
    except msgspec.ValidationError as error:
        what, path = read_mistake(str(error))
        raise Invalid(what, field=path or None) from None
    except msgspec.DecodeError as error:
        raise Invalid(f"the body is not JSON: {error}" if content.strip() else "the body is empty") from None


def _check_keys(content: bytes) -> None:
    """Raise `Invalid` where one key of the body has two values, as readers disagree about which of them counts.
    Deeper objects may be a caller's own text, and are not looked at."""
    whole = json.loads(content, object_pairs_hook=list, parse_int=str, parse_float=str)
    counts = Counter(entry[0] for entry in whole if isinstance(entry, tuple))
    for key, count in counts.items():
        if count > 1:
            raise Invalid(f"the body has the key {key!r} twice: remove one", field=key)
