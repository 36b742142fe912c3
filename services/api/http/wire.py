"""Bodies on the wire: Marathon's reading of a body, and its way of writing one.

A body is the first JSON value of the request, whatever its Content-Type; what follows it is ignored. Keys are matched
without regard to case, `null` is the same as absent, and an integer is a literal one (`1.0` is none). Unknown keys are
ignored, unless the kind forbids them, as those of routes do that Marathon did not have. A key that stands twice, a text
with a NUL or half a surrogate pair, a number that 64 bits cannot keep or too deep a nesting is refused where it is
read: the decoder leaves something in its place that `check_json` finds, and so names by its path.
"""

import functools
import json
import math
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import msgspec
from litestar import Response
from litestar.status_codes import HTTP_200_OK, HTTP_204_NO_CONTENT
from litestar.types import Receive, Scope, Send
from msgspec import Meta, Struct

from services.api.http.dry_runs import means_dry_run
from shared.domain.errors import Invalid, suggest
from shared.domain.jobs.templates import INTEGERS, NotExact, Repeated, check_json
from shared.domain.plain_words import describe_json_fault, is_exact, read_mistake

JSON = "application/json; charset=UTF-8"
NIL_UUID = "00000000-0000-0000-0000-000000000000"

_SPACE = re.compile(r"[ \t\n\r]*")
# Each may begin a list or an object, or a value in one: half a million of these keep everybody else waiting.
_OPENING = 100_000
_COMMAS = 250_000

T = TypeVar("T", bound=Struct)


class Body(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields that a route reads of a request. Every field has a default, which stands for `null` and for absence. A
    default of `UNSET` stands for absence alone."""


def read(body: bytes, kind: type[T], amend: Callable[[dict[str, Any]], None] | None = None) -> T:
    """The body as an object of this kind. `amend` may replace values that a field takes in another form. Raises
    `Invalid` with the `field` if it is no JSON object, or a field has the wrong type or cannot be stored."""
    return object_of(first_value(body), kind, amend)


def check_keys(raw: Any, known: Collection[str], ignored: Collection[str] = ()) -> None:
    """Raise `Invalid` for a key of a JSON object that is neither known nor ignored, without regard to case."""
    folded = {name.casefold() for name in (*known, *ignored)}
    for key in raw if isinstance(raw, dict) else ():
        if key.casefold() not in folded:
            raise Invalid(f"unknown field {key!r}{suggest(key, known)}", field=key)


def names_of(kind: type[Struct]) -> frozenset[str]:
    """The JSON names of the fields."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind))


def read_list(body: bytes, kind: type[T]) -> Iterator[T]:
    """The body as an array of objects of this kind, one at a time. Raises `Invalid` as `read`."""
    values = first_value(body)
    if not isinstance(values, list):
        raise Invalid("the body must be a JSON array")
    for index, value in enumerate(values):
        with name_element(index):
            yield object_of(value, kind)


@contextmanager
def name_element(index: int) -> Iterator[None]:
    """Prefix the field of an inner error with the element's index."""
    try:
        yield
    except Invalid as error:
        field = f"[{index}].{error.field}" if error.field else f"[{index}]"
        raise Invalid(error.reason, field=field, value=error.value) from error


def answer(value: object, status: int = HTTP_200_OK, headers: dict[str, str] | None = None) -> Response[bytes]:
    """The value as compact JSON and a newline."""
    return _Ready(msgspec.json.encode(value) + b"\n", status_code=status, media_type=JSON, headers=headers)


class _Ready(Response[bytes]):
    """An answer in bytes: Litestar would look for an encoder, cookies and layers of headers, for each request."""

    def to_asgi_response(self, *_: object, **__: object) -> Any:
        length = str(len(self.content))
        headers = {"content-type": JSON, "content-length": length, **self.headers}
        encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]

        async def send_all(_: Scope, __: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": self.status_code or HTTP_200_OK, "headers": encoded})
            await send({"type": "http.response.body", "body": self.content, "more_body": False})

        return send_all


def hide_path(url: str) -> str:
    """The URL without its path and query, which may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/…"


def hide(text: str) -> str:
    """The mark that a viewer sees in place of a text that may be personal: it shows whether there is one."""
    return "…" if text else ""


def empty() -> Response[None]:
    """204."""
    return Response(None, status_code=HTTP_204_NO_CONTENT)


def first_value(body: bytes) -> Any:
    """The first JSON value of the body, not checked yet. Raises `Invalid`."""
    if body.count(b"[") + body.count(b"{") > _OPENING:
        raise Invalid(f"the body has over {_OPENING:,} opening brackets and braces")
    if body.count(b",") > _COMMAS:
        raise Invalid(f"the body has over {_COMMAS:,} commas")
    # Bytes that are no UTF-8 become halves of surrogate pairs: found where they matter, ignored behind the value.
    text = body.removeprefix(BOM_UTF8).decode("utf-8", "surrogateescape")
    start = _SPACE.match(text)
    try:
        value, _ = _decoder.raw_decode(text, start.end() if start else 0)
    except RecursionError:
        raise Invalid("the body is nested too deeply") from None
    except ValueError as error:
        raise Invalid(
            f"the body is not JSON: {describe_json_fault(error)}" if body.strip() else "the body is empty"
        ) from None
    return value


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        value |= {key: Repeated() for key, count in counts.items() if count > 1}
    return value


def _integer(text: str) -> int:
    # The longest that fits has 20 characters, and Python reads no more than 4,300.
    return int(text) if len(text) <= 20 else INTEGERS.stop


def _float(text: str) -> float | NotExact:
    held = float(text)
    return held if is_exact(text) or not math.isfinite(held) else NotExact()


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a value of JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_object_of, parse_int=_integer, parse_float=_float, parse_constant=_constant
)


def object_of(raw: Any, kind: type[T], amend: Callable[[dict[str, Any]], None] | None = None) -> T:
    """The value of `first_value` as `read` returns it."""
    if raw is None:
        return kind()
    if not isinstance(raw, dict):
        raise Invalid("the body must be a JSON object")
    if kind.__struct_config__.forbid_unknown_fields:
        check_keys(raw, names_of(kind))
    fields = _known_fields(raw, kind)
    for field, value in fields.items():
        check_json(field, value)
    if amend is not None:
        amend(fields)
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        what, path = read_mistake(str(error), kind)
        raise Invalid(what, field=path or None, value=fields.get(path)) from None


def _known_fields(raw: dict[str, Any], kind: type[Struct]) -> dict[str, Any]:
    names = _folded_names(kind)
    fields: dict[str, Any] = {}
    for key, value in raw.items():
        name = names.get(key.casefold())
        if name is None:
            if means_dry_run(key):
                raise Invalid(f"unknown field {key!r}: leave it out, as no body asks for a dry run", field=key)
            continue
        if name in fields:
            raise Invalid(f"the key {name!r} stands twice: case makes no difference", field=name)
        fields[name] = value
    taken = _fields_with_null(kind)
    return {name: value for name, value in fields.items() if value is not None or name in taken}


@functools.cache
def _fields_with_null(kind: type[Struct]) -> frozenset[str]:
    """Fields for which `null` is a value: another default means their absence."""
    return frozenset(field.encode_name for field in msgspec.structs.fields(kind) if field.default is msgspec.UNSET)


@functools.cache
def _folded_names(kind: type[Struct]) -> dict[str, str]:
    return {field.encode_name.casefold(): field.encode_name for field in msgspec.structs.fields(kind)}


Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time", "examples": ["2026-12-24T14:00:00Z"]})]
