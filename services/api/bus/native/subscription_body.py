"""The bodies of the routes of native subscriptions: each becomes a wish, or an `Invalid` that names the field."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from services.api.http.strict_bodies import decode_body
from shared.domain.bus.filters import Comparison, DataCondition, EventFilter, check_filter
from shared.domain.bus.subscriptions import (
    LONGEST_TIMEOUT,
    MOST_BYTES,
    MOST_EVENTS,
    MOST_IN_FLIGHT,
    PUBLISHED_KEY,
    EventForm,
)
from shared.domain.bus.topics import check_published_name, check_topic_name
from shared.domain.bus.wishes import SubscriptionWish
from shared.domain.errors import Invalid
from shared.outgoing.checks import CheckUrl, check_headers

KEY = re.compile(r"[A-Za-z0-9\-_.~:]{1,255}")
MOST_ATTEMPTS = 1_000
MOST_AGE_HOURS = 720
MOST_KEEP_HOURS = 168
_LONGEST_MS = int(LONGEST_TIMEOUT.total_seconds() * 1e3)
_UUID = re.compile(r"[ -~]{0,255}")
_CONTACT = re.compile(r"|[!-?A-~]{1,64}@[!-?A-~]{1,189}")


class ConditionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on one place in an event's `data`. `value` is any JSON."""

    path: Annotated[str, Meta(description="A JSON pointer (RFC 6901).", examples=["/price"])]
    op: Comparison
    value: Any = True


class FilterBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events are wanted. All that is given must hold; an empty part wants all."""

    types: tuple[str, ...] = ()
    url_prefix: str = ""
    data: tuple[ConditionBody, ...] = ()


class EventSubscriptionBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subscription. Fields that are left out stay as they are; a new one gets defaults, and needs a `callback`."""

    callback: (
        Annotated[str, Meta(description="The URL that receives events.", examples=["https://app.example.com/events"])]
        | UnsetType
    ) = UNSET
    topics: tuple[str, ...] | UnsetType = UNSET
    filter: FilterBody | UnsetType = UNSET
    max_events: Annotated[int, Meta(ge=1, le=MOST_EVENTS)] | UnsetType = UNSET
    max_bytes: Annotated[int, Meta(ge=1, le=MOST_BYTES)] | UnsetType = UNSET
    timeout_ms: Annotated[int, Meta(ge=0, le=_LONGEST_MS)] | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    in_flight: Annotated[int, Meta(ge=1, le=MOST_IN_FLIGHT)] | UnsetType = UNSET
    max_attempts: Annotated[int, Meta(ge=1, le=MOST_ATTEMPTS)] | UnsetType = UNSET
    max_age_hours: Annotated[int, Meta(ge=1, le=MOST_AGE_HOURS)] | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    contact: str | UnsetType = UNSET


class SecretRotationBody(Struct, frozen=True, forbid_unknown_fields=True):
    """For how many hours the secret before it signs beside a new one."""

    keep_hours: Annotated[int, Meta(ge=0, le=MOST_KEEP_HOURS)] = 24


_subscription = msgspec.json.Decoder(EventSubscriptionBody)
_rotation = msgspec.json.Decoder(SecretRotationBody)


def read_wish(content: bytes, namespace: str, key: str, *, check_url: CheckUrl, allow_http: bool) -> SubscriptionWish:
    """The body's wish for the subscription of this key. Raises `Invalid`."""
    if KEY.fullmatch(key) is None or key in {".", ".."}:  # of a path, clients leave these out
        rule = "a key has 1 to 255 of letters, digits and - _ . ~ :, and is neither . nor .."
        raise Invalid(rule, field="key", value=key)
    body, is_published = decode_body(content, _subscription), key == PUBLISHED_KEY
    if body.callback is not UNSET:
        _check_callback(body.callback, check_url, allow_http=allow_http, is_published=is_published)
    check_name = check_published_name if is_published else check_topic_name
    for name in body.topics or ():
        check_name(name, field="topics")
    if body.headers is not UNSET:
        check_headers(body.headers, "headers")
    if _UUID.fullmatch(body.uuid or "") is None:
        raise Invalid("must have at most 255 printable characters of ASCII", field="uuid")
    if _CONTACT.fullmatch(body.contact or "") is None:
        raise Invalid("must be a mail address", field="contact")
    fields = asdict(body) | {"filter": read_filter(body.filter)}
    form = EventForm.PUBLISHED if is_published else EventForm.NATIVE
    return SubscriptionWish(namespace=namespace, key=key, form=form, **fields)


def read_keep_hours(content: bytes) -> int:
    """For how many hours the old secret is kept; without a body, a day. Raises `Invalid`."""
    return decode_body(content or b"{}", _rotation).keep_hours


def _check_callback(url: str, check_url: CheckUrl, *, allow_http: bool, is_published: bool) -> None:
    schemes = ("https://", "http://") if allow_http else ("https://",)
    if not url.lower().startswith(schemes) or (is_published and "?" in url):
        rule = f"must be an https{' or http' if allow_http else ''} URL" + (" without a query" if is_published else "")
        raise Invalid(rule, field="callback", value=url)
    check_url(url, field="callback")


def read_filter(body: FilterBody | UnsetType) -> EventFilter | UnsetType:
    """The filter of a body. Raises `Invalid`."""
    if isinstance(body, UnsetType):
        return UNSET
    conditions = tuple(
        DataCondition(each.path, each.op, msgspec.json.encode(each.value).decode()) for each in body.data
    )
    wanted = EventFilter(body.types, body.url_prefix, conditions)
    check_filter(wanted, field="filter")
    return wanted
