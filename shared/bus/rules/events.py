"""Topics, and their events: checks of incoming ones, and the two outgoing forms.

The first publisher on a topic owns it; subscribing leaves it unowned. A record of the log is an event as JSON in
the form of the native API, so that most subscriptions get the bytes of the log. Routemaster's clients get
`{topic, type, url, t, data?}`, made from the same record.
"""

import re
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from shared.core.errors import Forbidden, Invalid
from shared.core.plain_words import is_deeper, read_mistake

NOTICES = "carillon_notices"
"""The topic of Carillon's own notices about suspended subscriptions and lost events
(`shared/bus/rules/notices.py`)."""
NOTIFIER = "carillon"
"""The namespace of Carillon as a publisher. All others begin with `token:` or `user:`."""
RESERVED_PREFIX = "carillon_"
"""Only Carillon publishes on topics with this prefix."""
EVERYBODY = "everybody"
"""The audience of a notice to all namespaces, none of which has this name."""
DESCRIPTION_CHARACTERS = 1_000
_PUBLISHED_NAME = re.compile(r"[a-z_]{1,64}")
_NAME = re.compile(r"[a-z0-9_.-]{1,64}")


class PrivateTopic(Forbidden):
    """The topic is private to another namespace."""


class Topic(Struct, frozen=True, kw_only=True):
    """A topic. `id` is its name; `owner` is the namespace that may publish on it, `""` for none yet. Only its owner
    subscribes to a `private` one."""

    id: str
    owner: str = ""
    description: str = ""
    private: bool = False
    created_at: datetime

    def may_publish(self, namespace: str) -> bool:
        return self.owner in ("", namespace)

    def check_subscriber(self, namespace: str, *, field: str) -> None:
        if self.private and self.owner != namespace:
            rule = f"the topic {self.id} is private: only its owner subscribes to it"
            raise PrivateTopic(rule, field=field, value=self.id)


def is_own(name: str) -> bool:
    return name.startswith(RESERVED_PREFIX)


def check_topic_name(name: str, *, field: str) -> None:
    """Raise `Invalid` if this cannot be a topic's name. Clients remove `.` and `..` from a path, so these would name
    another resource."""
    if _NAME.fullmatch(name) is None or name in {".", ".."}:
        rule = "a topic's name is 1 to 64 of a to z, 0 to 9, '_', '.' and '-', and neither '.' nor '..'"
        raise Invalid(rule, field=field, value=name)


def check_published_name(name: str, *, field: str) -> None:
    if _PUBLISHED_NAME.fullmatch(name) is None:
        raise Invalid("a topic's name is 1 to 64 of a to z and '_'", field=field, value=name)


URL_CHARACTERS = 2_048
ID_CHARACTERS = 128
NUMBER_CHARACTERS = 64
"""A number is passed on as written, and could be written with a million digits."""
DATA_DEPTH = 50  # a delivery adds two levels, and many receivers read at most 64
PUBLISHED_TYPES = ("create", "update", "delete", "noop")
_TYPE = re.compile(r"[a-z0-9_.-]{1,64}")
_ID = re.compile(r"[!-~]{1,128}")
_NUMBER = re.compile(rb"-?[0-9]")
_UNPRINTABLE = re.compile(r"[\x00-\x20\x7f]")
_WRITTEN_PER_BYTE, _WRITTEN_BESIDE = 8, 256
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
T = TypeVar("T")


class EventDraft(Struct, frozen=True):
    """A checked event. `t` is a number as written, or `UNSET` for the arrival. `id` is `""` if the publisher gave none.
    `audience` is the receiver of a notice: no client can set it."""

    type: str
    url: str
    t: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    id: str = ""
    audience: str = ""


class BusEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event in the log. `at` is its arrival in epoch milliseconds by the database's clock. `audience` is the
    namespace that a notice is for; other events have none."""

    id: str
    at: int
    topic: str
    type: str
    url: str
    t: Raw
    data: Raw | UnsetType = UNSET
    audience: str = ""


class _PublishedForm(Struct, frozen=True, omit_defaults=True):
    topic: str
    type: str
    url: str
    t: Raw
    data: Raw | UnsetType = UNSET


class _NativeFields(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of an item, as written. A body may have millions of other fields, for which no objects are made."""

    type: Raw | UnsetType = UNSET
    url: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET
    t: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET


class _PublishedFields(Struct, frozen=True):
    type: Raw | UnsetType = UNSET
    url: Raw | UnsetType = UNSET
    timestamp: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET


class _AnyFields(Struct, frozen=True):
    """Ignores all fields."""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(BusEvent)
_native_fields = msgspec.json.Decoder(_NativeFields)
_published_fields = msgspec.json.Decoder(_PublishedFields)
_double = msgspec.json.Decoder(float)
_text = msgspec.json.Decoder(str | None)
_any_fields = msgspec.json.Decoder(_AnyFields)


def stamp(draft: EventDraft, *, topic: str, id: str, at: int) -> bytes:
    """The record of an event that arrived at this millisecond."""
    t = Raw(str(at).encode()) if draft.t is UNSET else draft.t
    event = BusEvent(
        id=draft.id or id,
        at=at,
        topic=topic,
        type=draft.type,
        url=draft.url,
        t=t,
        data=draft.data,
        audience=draft.audience,
    )
    return _encoder.encode(event)


def read_event(record: bytes) -> BusEvent | None:
    try:
        return _decoder.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def published_form(event: BusEvent) -> bytes:
    return _encoder.encode(_PublishedForm(event.topic, event.type, event.url, event.t, event.data))


def read_published(body: bytes, *, data_bytes: int) -> EventDraft:
    """The event of a request of Routemaster's API. Unknown keys are ignored. `data_bytes` limits its `data`, as
    MessagePack."""
    fields = _read_fields(body, _published_fields)
    type_ = _read_text(fields.type, "type", required=True)
    if type_ not in PUBLISHED_TYPES:
        raise Invalid(f"must be one of {', '.join(PUBLISHED_TYPES)}", field="type", value=type_)
    url = _read_text(fields.url, "url", required=True)
    check_event_url(url, schemes=("https",), field="url")
    data = _unset_if_null(fields.data)
    if not isinstance(data, UnsetType):
        _check_published_data(data, data_bytes)
    return EventDraft(type_, url, _read_number(fields.timestamp, field="timestamp"), data)


def read_native(item: bytes, *, data_bytes: int) -> EventDraft:
    """The event of an item of the native API. An unknown key is refused. `data_bytes` limits its `data`, as JSON."""
    fields = _read_fields(item, _native_fields)
    type_, id_ = _read_text(fields.type, "type", required=True), _read_text(fields.id, "id")
    if not is_type(type_):
        raise Invalid("must be 1 to 64 of a to z, 0 to 9, '_', '.' and '-'", field="type", value=type_)
    if id_ and _ID.fullmatch(id_) is None:
        raise Invalid(f"must be 1 to {ID_CHARACTERS} printable characters of ASCII, no space", field="id", value=id_)
    url = _read_text(fields.url, "url", required=True)
    check_event_url(url, schemes=("https", "http"), field="url")
    if not isinstance(fields.data, UnsetType) and len(memoryview(fields.data)) > data_bytes:
        raise Invalid(f"must have at most {data_bytes:,} bytes of JSON", field="data")
    _decode_data(fields.data)  # otherwise half a character would reach receivers, who cannot read it
    return EventDraft(type_, url, _read_number(fields.t, field="t"), fields.data, id_)


def is_type(text: str) -> bool:
    return _TYPE.fullmatch(text) is not None


def check_object(body: bytes) -> None:
    _read_fields(body, _any_fields)


def check_event_url(url: str, *, schemes: tuple[str, ...], field: str) -> None:
    """Raise `Invalid` unless this can name an event's subject: an absolute URL without a query."""
    rule = f"must be an absolute {' or '.join(schemes)} URL without a query, of at most {URL_CHARACTERS:,} characters"
    try:
        parts = urlsplit(url)
        good = parts.scheme in schemes and bool(parts.hostname) and "?" not in url
    except ValueError:
        good = False
    if not good or len(url) > URL_CHARACTERS or _UNPRINTABLE.search(url) is not None:
        raise Invalid(rule, field=field, value=url)


def _read_fields(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if unknown := _UNKNOWN.fullmatch(str(error)):
            raise Invalid(
                f"an event has {', '.join(sorted(_NativeFields.__struct_fields__))} only", field=unknown[1]
            ) from None
        raise Invalid(f"must be a JSON object: {read_mistake(str(error))[0]}") from None


def _read_text(raw: Raw | UnsetType, field: str, *, required: bool = False) -> str:
    """The text of a field; `""` if it is optional, and absent or null."""
    try:
        given = None if isinstance(raw, UnsetType) else _text.decode(raw)
    except msgspec.ValidationError:
        given = ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Invalid("cannot be read", field=field) from None
    if given == "" or (given is None and required):
        raise Invalid("must be a text that is not empty", field=field)
    return given or ""


def _read_number(raw: Raw | UnsetType, *, field: str) -> Raw | UnsetType:
    written = bytes(raw).strip() if not isinstance(raw, UnsetType) else b"null"
    if written == b"null":
        return UNSET
    if _NUMBER.match(written) is None:
        raise Invalid("must be a number", field=field)
    if len(written) > NUMBER_CHARACTERS:
        raise Invalid(f"must be a number of at most {NUMBER_CHARACTERS} characters", field=field)
    try:
        _double.decode(written)
    except msgspec.DecodeError:
        raise Invalid("must be a number that a double holds", field=field) from None
    return Raw(written)


def _unset_if_null(raw: Raw | UnsetType) -> Raw | UnsetType:
    return UNSET if isinstance(raw, UnsetType) or bytes(raw).strip() == b"null" else raw


def _check_published_data(data: Raw, most: int) -> None:
    # The data is passed on as written: its MessagePack would hide blanks, repeated keys and long numbers.
    written = len(memoryview(data))
    if written > most * _WRITTEN_PER_BYTE + _WRITTEN_BESIDE:
        raise Invalid(f"is written in {written:,} bytes, too many for {most} bytes of MessagePack", field="data")
    value = _decode_data(data)
    if not isinstance(value, dict):
        raise Invalid("must be an object or null", field="data")
    try:
        size = len(msgspec.msgpack.encode(value))
    except (OverflowError, RecursionError):
        raise Invalid("holds a number or a nesting that MessagePack cannot", field="data") from None
    if size > most:
        raise Invalid(f"takes at most {most} bytes as MessagePack, not {size}", field="data")


def _decode_data(raw: Raw | UnsetType) -> Any:
    if isinstance(raw, UnsetType):
        return None
    try:
        value = msgspec.json.decode(raw)
    except msgspec.ValidationError:
        raise Invalid(
            "has a number that a double does not hold: write fewer digits, or a string", field="data"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Invalid("cannot be read", field="data") from None
    if is_deeper(bytes(raw), DATA_DEPTH):
        raise Invalid(f"must be nested at most {DATA_DEPTH} deep", field="data")
    return value
