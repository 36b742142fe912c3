"""`/bus/subscriptions`: the caller's subscriptions, by key. A caller with a role over another namespace names it by
`?namespace=`.

Each body becomes a wish, or an `Invalid` that names the field and its rule. Instants are RFC 3339 in UTC.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from services.api.accounts.apps import CALLERS_NAMESPACE, NAMESPACE, namespace_of, own_namespace
from services.api.http import bodies, paging
from services.api.http.acts import note_change, reason_of
from services.api.http.bodies import Timestamp, decode_body, hide_path
from services.api.http.identity import look_again
from services.api.http.rights import KNOWN, OPERATE_NAMESPACE, OWN_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Resource, Route
from shared.bus.rules.events import PrivateTopic, check_published_name, check_topic_name
from shared.bus.rules.filters import Comparison, DataCondition, EventFilter, check_filter
from shared.bus.rules.subscriptions import (
    LONGEST_TIMEOUT,
    MOST_BYTES,
    MOST_EVENTS,
    MOST_IN_FLIGHT,
    PUBLISHED_KEY,
    EventForm,
    EventSubscription,
    SubscriptionStatus,
    SubscriptionWish,
)
from shared.bus.standing import QueueStandings
from shared.bus.subscriptions import MadeSubscription, Subscribing
from shared.core.errors import Forbidden, Invalid
from shared.core.instants import format_instant, format_maybe
from shared.drivers.http.checks import CheckUrl, check_headers
from shared.runtime.bus_settings import BusSettings

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
    if isinstance(body, UnsetType):
        return UNSET
    conditions = tuple(
        DataCondition(each.path, each.op, msgspec.json.encode(each.value).decode()) for each in body.data
    )
    wanted = EventFilter(body.types, body.url_prefix, conditions)
    check_filter(wanted, field="filter")
    return wanted


HIDDEN = "…"


class EventSubscriptionView(Struct, frozen=True, kw_only=True):
    """A subscription. `secret` is shown when it is made or rotated, and never again. `redacted` says that the values of
    `headers`, the path of `callback`, `uuid` and `contact` are left out: the caller is a viewer. `reason` says why it
    is not active. `id` names it in metrics. `failing_since`, in the answers to GET, is when the receiver's calls
    began to fail, `null` if the last one succeeded."""

    id: str
    key: str
    callback: str
    topics: tuple[str, ...]
    filter: FilterBody
    max_events: int
    max_bytes: int
    timeout_ms: int
    ordered: bool
    in_flight: int
    max_attempts: int
    max_age_hours: int
    headers: dict[str, str]
    uuid: str
    contact: str
    state: SubscriptionStatus
    reason: str
    created_at: Timestamp
    updated_at: Timestamp
    secret: str | UnsetType = UNSET
    redacted: bool = False
    failing_since: Timestamp | UnsetType | None = UNSET


def subscription_view(
    subscription: EventSubscription,
    *,
    secret: str = "",
    personal: bool = True,
    failing_since: datetime | UnsetType | None = UNSET,
) -> EventSubscriptionView:
    return EventSubscriptionView(
        id=subscription.id,
        key=subscription.key,
        callback=subscription.callback if personal else hide_path(subscription.callback),
        topics=subscription.topics,
        filter=show_filter(subscription.filter),
        max_events=subscription.max_events,
        max_bytes=subscription.max_bytes,
        timeout_ms=subscription.timeout_ms,
        ordered=subscription.ordered,
        in_flight=subscription.in_flight,
        max_attempts=subscription.max_attempts,
        max_age_hours=subscription.max_age_hours,
        headers=subscription.headers if personal else dict.fromkeys(subscription.headers, HIDDEN),
        uuid=subscription.uuid if personal else "",
        contact=subscription.contact if personal else "",
        state=subscription.state,
        reason=subscription.reason,
        created_at=format_instant(subscription.created_at),
        updated_at=format_instant(subscription.updated_at),
        secret=secret or UNSET,
        redacted=not personal,
        failing_since=UNSET if isinstance(failing_since, UnsetType) else format_maybe(failing_since),
    )


def show_filter(wanted: EventFilter) -> FilterBody:
    conditions = tuple(ConditionBody(each.path, each.op, msgspec.json.decode(each.value)) for each in wanted.data)
    return FilterBody(wanted.types, wanted.url_prefix, conditions)


BUS_SUBSCRIPTIONS = "/bus/subscriptions"
BUS_SUBSCRIPTION = BUS_SUBSCRIPTIONS + "/{key:str}"
_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
SEGMENTS = {"key": {"type": "string", "pattern": f"^{KEY.pattern}$", "description": "The key of the subscription."}}
_route = partial(
    Route, segments=SEGMENTS, answers={HTTPStatus.OK: EventSubscriptionView}, problems=(_NOT_FOUND,),
    parameters=(NAMESPACE,),
)  # fmt: skip


class BusSubscriptionsResource(Resource):
    def __init__(
        self, subscribing: Subscribing, standings: QueueStandings, settings: BusSettings, *, check_url: CheckUrl
    ) -> None:
        self._subscribing = subscribing
        self._standings = standings
        self._settings = settings
        self._check_url = check_url

    @_route(
        "GET", BUS_SUBSCRIPTIONS, summary="List the subscriptions of a namespace by key.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[EventSubscriptionView]}, problems=(), paged=True,
    )  # fmt: skip
    async def list_bus_subscriptions(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, str)
        page = await self._subscribing.page(namespace=namespace_of(request), after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, page, lambda subscription: subscription.key)
        return bodies.answer(await self._show_all(request, page), headers=headers)

    @_route("GET", BUS_SUBSCRIPTION, summary="Show a subscription, never its secret.", who=VIEW_NAMESPACE)
    async def get_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        [shown] = await self._show_all(request, [await self._subscribing.get(namespace_of(request), key)])
        return bodies.answer(shown)

    @_route(
        "PUT", BUS_SUBSCRIPTION,
        summary="Make a subscription (its secret is shown this once), or change it: what the body does not name stays.",
        act="subscription.replace", who=KNOWN, body=EventSubscriptionBody, problems=(_CONFLICT,),
        parameters=(CALLERS_NAMESPACE,),
        answers={HTTPStatus.OK: EventSubscriptionView, HTTPStatus.CREATED: EventSubscriptionView},
    )  # fmt: skip
    async def put_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        namespace, content = own_namespace(request), await request.body()
        await look_again(request)
        wish = read_wish(
            content,
            namespace,
            key,
            check_url=self._check_url,
            allow_http=self._settings.allow_http,
        )
        stands = await self._subscribing.find(namespace, key)
        try:
            made = await self._subscribing.subscribe(wish)
        except PrivateTopic:
            raise
        except Forbidden as error:  # a quota
            raise Invalid(str(error), field=error.field) from None
        _note(stands, made.subscription)
        return _answer_made(made, HTTPStatus.CREATED if stands is None else HTTPStatus.OK)

    @_route(
        "DELETE", BUS_SUBSCRIPTION, summary="Remove a subscription, with all that waits for it.",
        act="subscription.delete", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None},
    )  # fmt: skip
    async def delete_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[None]:
        await self._subscribing.unsubscribe(namespace_of(request), key)
        return bodies.empty()

    @_route(
        "POST", BUS_SUBSCRIPTION + "/pause", summary="Have nothing delivered; what comes is collected.",
        act="subscription.pause", who=OPERATE_NAMESPACE, problems=(_NOT_FOUND, _CONFLICT),
    )  # fmt: skip
    async def pause_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        moved = await self._subscribing.pause(namespace_of(request), key, reason=reason_of(request))
        return bodies.answer(_show(request, moved))

    @_route(
        "POST", BUS_SUBSCRIPTION + "/resume", summary="Have what waits delivered, after a pause or a suspension.",
        act="subscription.resume", who=OPERATE_NAMESPACE, problems=(_NOT_FOUND, _CONFLICT),
    )  # fmt: skip
    async def resume_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        return bodies.answer(_show(request, await self._subscribing.resume(namespace_of(request), key)))

    @_route(
        "POST", BUS_SUBSCRIPTION + "/secrets",
        summary="Give a subscription a new secret, shown this once. The one before signs beside it for `keep_hours`.",
        act="subscription.rotate", who=OWN_NAMESPACE, body=SecretRotationBody, body_required=False,
        problems=(_NOT_FOUND, _CONFLICT),
    )  # fmt: skip
    async def rotate_bus_secret(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        keep = timedelta(hours=read_keep_hours(await request.body()))
        return _answer_made(await self._subscribing.rotate_secret(namespace_of(request), key, keep=keep))

    async def _show_all(
        self, request: Request[Any, Any, Any], subscriptions: Sequence[EventSubscription]
    ) -> list[EventSubscriptionView]:
        since = await self._standings.find_failing([subscription.queue for subscription in subscriptions])
        personal = sees_personal_data(request)
        return [
            subscription_view(each, personal=personal, failing_since=since.get(each.queue)) for each in subscriptions
        ]


def _show(request: Request[Any, Any, Any], subscription: EventSubscription) -> EventSubscriptionView:
    return subscription_view(subscription, personal=sees_personal_data(request))


def _answer_made(made: MadeSubscription, status: HTTPStatus = HTTPStatus.OK) -> Response[bytes]:
    return bodies.answer(subscription_view(made.subscription, secret=made.secret), status)


def _note(before: EventSubscription | None, after: EventSubscription) -> None:
    """Note the change for the audit without secrets: headers may contain credentials."""
    was = None if before is None else subscription_view(before, personal=False)
    note_change(was, subscription_view(after, personal=False))
