"""Bodies on the wire: Marathon's reading of a body and its way of writing one; bodies that are read strictly; and
bodies of many items, with an answer for each.

A strict body is one JSON value in UTF-8, in which an unknown field is an error that names the nearest known one.
"""

import functools
import json
import math
import re
import threading
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, lru_cache
from http import HTTPStatus
from io import BytesIO
from itertools import islice
from typing import Annotated, Any, NoReturn, TypeVar, get_origin
from urllib.parse import urlsplit

import msgspec
from litestar import Request, Response
from litestar.status_codes import HTTP_200_OK, HTTP_204_NO_CONTENT
from litestar.types import Receive, Scope, Send
from msgspec import Meta, Raw, Struct, defstruct, inspect
from msgspec.structs import astuple

from carillon.wire import ItemError
from services.api.http.errors import STATUS
from services.api.http.paging import means_dry_run
from shared.core.errors import Invalid, Refused, suggest
from shared.core.plain_words import (
    JSON_DEPTH,
    NOT_EXACT,
    Types,
    describe_json_fault,
    find_json_fault,
    is_deeper,
    is_exact,
    read_mistake,
    types_of,
    types_within,
)
from shared.jobs.rules.templates import INTEGERS, NotExact, Repeated, check_json

JSON = "application/json; charset=UTF-8"
NIL_UUID = "00000000-0000-0000-0000-000000000000"
_SPACE = re.compile(r"[ \t\n\r]*")
# Each may begin a list or an object, or a value in one: half a million of these keep everybody else waiting.
_OPENING = 100_000
_COMMAS = 250_000
T = TypeVar("T", bound=Struct)


class Body(Struct, frozen=True, kw_only=True, rename="camel"):
    """The fields that a route reads of a request. Every field has a default, which means `null` or absence. A
    default of `UNSET` means absence alone."""


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
            raise Invalid(f"the key {name!r} occurs twice; upper and lower case are the same", field=name)
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
_INTEGERS = range(-(2**63), 2**64)
_SURE_CHARACTERS = 18  # 64 bits keep any 18 digits
M = TypeVar("M")
# A union would be made anew for each look.
_NUMBER, _NESTED = (int, float), (list, dict)


class _Inexact(str):
    """A number that would be another one after it was read."""

    __slots__ = ()


class Between(Struct, frozen=True):
    """The bounds of a number, both included."""

    least: float
    most: float

    def find_fault(self, value: Any) -> str:
        if not isinstance(value, _NUMBER) or self.least <= value <= self.most:
            return ""
        kind = "an integer" if isinstance(value, int) else "a number"
        return f"must be {kind} >= {self.least}" if value < self.least else f"must be {kind} <= {self.most}"


class OneOf(Struct, frozen=True):
    """The choices of a text, and what may be in its place."""

    values: tuple[str, ...]
    other: tuple[str, ...] = ()

    def find_fault(self, value: Any) -> str:
        if not isinstance(value, str) or value in self.values:
            return ""
        return f"must be one of {', '.join(self.values + self.other)}, not {value!r}"


_Look = tuple[str, str, Any, Between | OneOf | None]
"""A field's name, its name in JSON, its default and its rule."""


class Checks(dict[type[Struct], Mapping[str, Between | OneOf]]):
    """The bounds and choices of fields, by the type and the name in JSON."""

    @cached_property
    def _looks(self) -> dict[type[Struct], Sequence[_Look]]:
        return {}

    def check(self, value: Any, place: str = "") -> None:
        """Raise `Invalid` for a field of this value, or of one in it, that breaks its rule."""
        kind = type(value)
        if kind not in self._looks:
            self._looks[kind] = self._look(kind)
        for name, encoded, default, rule in self._looks[kind]:
            inner = getattr(value, name)
            if inner is None or inner is default:
                continue
            if rule is not None and (fault := rule.find_fault(inner)):
                raise Invalid(f"{place}{encoded} {fault}", field=place + encoded)
            if isinstance(inner, Struct):
                self.check(inner, f"{place}{encoded}.")

    def _look(self, kind: type[Struct]) -> list[_Look]:
        """The fields of this type that have a rule, or may be an object."""
        own, inner = self.get(kind, {}), shapes_of(kind)[0].fields
        looked_at = [
            each for each in msgspec.structs.fields(kind) if each.encode_name in own or inner[each.encode_name]
        ]
        return [(each.name, each.encode_name, each.default, own.get(each.encode_name)) for each in looked_at]


def decode_body(
    content: bytes, decoder: msgspec.json.Decoder[M], *, limits: Checks | None = None, is_checked_later: bool = False
) -> M:
    """The body as the decoder's type. A type of `carillon.wire` has `limits`, and its unknown fields are refused here.
    With `is_checked_later`, duplicate keys are found when the parts are read. `Invalid` names the field, if any."""
    content = content.removeprefix(BOM_UTF8)
    kind: Any = decoder.type
    try:
        content.decode()
        body = decoder.decode(content)
        if not is_checked_later:
            _check_values(content, kind, checks_names=limits is not None)
        if limits is not None:
            limits.check(body)
        return body
    except UnicodeDecodeError:
        raise Invalid("the body is not UTF-8") from None
    except RecursionError:
        raise Invalid("the body is nested too deeply") from None
    except msgspec.ValidationError as error:
        if limits is not None:
            with suppress(ValueError, RecursionError):
                _check_names(json.loads(content), shapes_of(kind), "")
        what, path = read_mistake(str(error), kind)
        raise Invalid(what, field=path or None) from None
    except msgspec.DecodeError:
        fault = find_json_fault(content.decode())
        raise Invalid(f"the body is not JSON: {fault}" if content.strip() else "the body is empty") from None


def _check_values(content: bytes, kind: Any, *, checks_names: bool) -> None:
    """Raise `Invalid` if a key of the body has two values, because readers disagree about which one counts; if a number
    in a field for any value would change; or if such a field is nested too deep. A part that is not read, such as a
    payload, is passed on as it came."""
    _reader.is_suspicious = is_deeper(content, JSON_DEPTH)
    whole = _reader.decode(content.decode())
    if checks_names:
        _check_names(whole, shapes_of(kind), "")
    if _reader.is_suspicious:
        _check_objects(whole, types_of(kind), "")


class _Reader(threading.local):
    """Reads JSON, and notes whether an object has a key twice (then it is a tuple of pairs) or a number would change.
    Each thread has one, because making a decoder takes as long as reading a small body."""

    def __init__(self) -> None:
        self.is_suspicious = False
        self.decode = json.JSONDecoder(
            object_pairs_hook=self._note,
            parse_int=self._note_integer,
            parse_float=lambda text: self._note_number(text, is_exact(text)),
        ).decode

    def _note(self, pairs: list[tuple[str, Any]]) -> dict[str, Any] | tuple[tuple[str, Any], ...]:
        if len(named := dict(pairs)) == len(pairs):
            return named
        self.is_suspicious = True
        return tuple(pairs)

    def _note_integer(self, text: str) -> str:
        is_sure = len(text) <= _SURE_CHARACTERS
        return text if is_sure else self._note_number(text, len(text) <= 20 and int(text) in _INTEGERS)

    def _note_number(self, text: str, is_kept: bool) -> str:
        self.is_suspicious = self.is_suspicious or not is_kept
        return text if is_kept else _Inexact(text)


_reader = _Reader()


class ObjectShape(Struct, frozen=True):
    """The fields of an object, each with the shapes of the objects in it. It is chosen by its tag, if it has one."""

    kind: type[Struct]
    tag_field: str | None
    tag: Any
    fields: dict[str, tuple["ObjectShape", ...]]
    with_objects: tuple[str, ...]


@lru_cache
def shapes_of(kind: Any) -> tuple[ObjectShape, ...]:
    return tuple(_shapes(types_of(kind)))


def _shapes(types: Types) -> Iterator[ObjectShape]:
    for each in types:
        if isinstance(each, inspect.ListType | inspect.VarTupleType):
            yield from _shapes([each.item_type])
        elif isinstance(each, inspect.StructType):
            fields = {
                field.encode_name: tuple(_shapes(types_within([each], field.encode_name))) for field in each.fields
            }
            tag = {each.tag_field: ()} if each.tag_field else {}
            with_objects = tuple(name for name, inner in fields.items() if inner)
            yield ObjectShape(get_origin(each.cls) or each.cls, each.tag_field, each.tag, fields | tag, with_objects)


def _check_names(value: Any, shapes: tuple[ObjectShape, ...], place: str) -> None:
    """Raise `Invalid` for a field that the shape of its object does not have."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            if isinstance(each, _NESTED):
                _check_names(each, shapes, f"{place}[{index}]")
    if not isinstance(value, dict) or not shapes:
        return
    shape = shapes[0]
    if shape.tag_field is not None:
        tag = value.get(shape.tag_field)
        if (found := next((each for each in shapes if each.tag == tag), None)) is None:
            return
        shape = found
    known = shape.fields
    if not value.keys() <= known.keys():
        key = next(key for key in value if key not in known)
        name = f"{place}.{key}" if place else key
        raise Invalid(f"there is no field {name!r}{suggest(key, known)}", field=name)
    for key in shape.with_objects:
        if isinstance(inner := value.get(key), _NESTED):
            _check_names(inner, known[key], f"{place}.{key}" if place else key)


def _check_objects(value: Any, types: Types, path: str, depth: int = 1) -> None:
    own = [each for each in types if not isinstance(each, inspect.RawType)]
    if not own:
        return
    if depth > JSON_DEPTH and isinstance(value, list | dict | tuple):
        raise Invalid(
            f"the body is nested more than {JSON_DEPTH} deep", field=path.partition(".")[0].partition("[")[0] or None
        )
    if isinstance(value, _Inexact) and any(isinstance(each, inspect.AnyType) for each in own):
        raise Invalid(f"{path or 'the body'} {NOT_EXACT}", field=path or None)
    if isinstance(value, list):
        for index, each in enumerate(value):
            _check_objects(each, types_within(own, ""), f"{path}[{index}]", depth + 1)
    elif isinstance(value, tuple):
        counts = Counter(key for key, _ in value)
        twice = next(key for key in counts if counts[key] > 1)
        name = f"{path}.{twice}" if path else twice
        raise Invalid(f"the body has the key {name!r} twice: remove one", field=name)
    elif isinstance(value, dict):
        for key, inner in value.items():
            name = f"{path}.{key}" if path else key
            _check_objects(inner, types_within(own, key), name, depth + 1)


NDJSON = "application/x-ndjson"
ITEM_BYTES = 2 * 2**20
"""The most for an item whose fields may have any names: one of millions of fields would hold the loop for a second."""
_NDJSON_TYPES = frozenset({NDJSON, "application/ndjson", "application/jsonl", "application/x-jsonlines"})
_lone_decoder = msgspec.json.Decoder(Raw)
R = TypeVar("R", bound=Refused)


def item_error(error: Refused) -> ItemError:
    return ItemError(error.reason, error.field)


class ItemsBody(Struct, frozen=True):
    items: Sequence[bytes]
    in_lines: bool

    def answer(self, answers: Sequence[Struct], status: HTTPStatus = HTTPStatus.OK) -> Response[bytes]:
        if not self.in_lines:
            return answer(answers, status)
        lines = msgspec.json.Encoder().encode_lines(answers)
        return Response(lines, media_type=NDJSON, status_code=status)


def read_items(request: Request[Any, Any, Any], content: bytes, *, most: int) -> ItemsBody:
    """The items of a body. Raises `Invalid` if there are none, or more than `most`."""
    content = content.removeprefix(BOM_UTF8)
    in_lines = _is_ndjson(request, content)
    items = _lines(content, most + 1) if in_lines else _elements(content, most + 1)
    if not 1 <= len(items) <= most:
        raise Invalid(f"1 to {most:,} items are needed", value=len(items) if len(items) <= most else f"over {most:,}")
    return ItemsBody(items, in_lines)


def read_lone_item(request: Request[Any, Any, Any], content: bytes) -> bytes | None:
    """The body as the only item if it is an object and not declared as lines; else `None`."""
    content = content.removeprefix(BOM_UTF8)
    if _kind(request) in _NDJSON_TYPES or content.lstrip()[:1] != b"{":
        return None
    try:
        return bytes(_lone_decoder.decode(content))
    except (msgspec.DecodeError, RecursionError):
        return content if len(_lines(content, 2)) == 1 else None


def check_size(item: bytes) -> None:
    if len(item) > ITEM_BYTES:
        raise Invalid(f"one of several takes {ITEM_BYTES:,} bytes at most")


def without_frames(error: R) -> R:
    """The error without its frames, which would keep the item in memory until all items are read."""
    error.__context__ = None
    return error.with_traceback(None)


def status_of(error: Refused) -> HTTPStatus:
    """The status of the answer to a single item with this error."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def _is_ndjson(request: Request[Any, Any, Any], content: bytes) -> bool:
    return _kind(request) in _NDJSON_TYPES or content.lstrip()[:1] == b"{"


def _kind(request: Request[Any, Any, Any]) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _lines(content: bytes, most: int) -> list[bytes]:
    """The first `most` non-empty lines. The others are not read, because a body may have millions."""
    lines = islice(filter(bytes.strip, BytesIO(content)), most)
    return [line.removesuffix(b"\n") for line in lines]


def _elements(content: bytes, most: int) -> list[bytes]:
    elements = astuple(decode_body(content, _decode_elements(most), is_checked_later=True))
    return [bytes(element) for element in elements if element is not None]


@lru_cache
def _decode_elements(most: int) -> msgspec.json.Decoder[Struct]:
    """A decoder of arrays that skips all elements after the first `most` without making objects, because a body may
    have millions."""
    fields = [(f"element_{number}", Raw, None) for number in range(most)]
    return msgspec.json.Decoder(defstruct("Elements", fields, array_like=True))
