"""`/bus/subscriptions/{key}/deliveries` and `/bus/deliveries/{id}`: the batches for a receiver, and its answers; and
`/bus/dead-letters`: events that no receiver has taken, to be delivered again or given up.
"""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from msgspec.structs import asdict

from services.api.accounts.apps import NAMESPACE, namespace_of
from services.api.bus.native.subscriptions import BUS_SUBSCRIPTION, SEGMENTS
from services.api.http import bodies, paging
from services.api.http.bodies import Timestamp, decode_body, hide
from services.api.http.rights import OPERATE_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from shared.bus.deliveries import MOST_AT_ONCE, BusDeadLetterFlow, DeliveryLookup
from shared.bus.rules.deliveries import (
    BusDeadLetter,
    BusLetterPlace,
    DeathReason,
    DeliveryAttempt,
    DeliveryPlace,
    DeliveryStatus,
    EventDelivery,
    choose_deliveries,
    place_of_delivery,
    place_of_letter,
)
from shared.core.instants import format_instant, format_maybe


class BusAttemptView(Struct, frozen=True, kw_only=True):
    """One call of a receiver, its duration in `ms`, and the `status` of its answer, or 0 and the `error`; `excerpt` is
    the beginning of the answer's body."""

    at: Timestamp
    ms: int
    status: int
    error: str
    excerpt: str


def attempt_view(attempt: DeliveryAttempt, *, personal: bool) -> BusAttemptView:
    return BusAttemptView(
        at=format_instant(attempt.at),
        ms=attempt.ms,
        status=attempt.status,
        error=attempt.error,
        excerpt=attempt.excerpt if personal else hide(attempt.excerpt),
    )


class BusDeliveryView(Struct, frozen=True, kw_only=True):
    """One batch of `count` events for the subscription with this key, the first of which arrived at `first_at`; it was
    cut at `cut_at`. While it is open it is tried again at `retry_at` at the earliest. The first three and the
    last three of the `made` attempts are shown; `failures` of them failed while other deliveries succeeded."""

    id: str
    key: str
    sequence: int
    status: DeliveryStatus
    count: int
    bytes: int
    first_at: Timestamp
    cut_at: Timestamp
    retry_at: Timestamp | None
    settled_at: Timestamp | None
    made: int
    failures: int
    attempts: list[BusAttemptView]
    redacted: bool = False


class WholeBusDeliveryView(BusDeliveryView, frozen=True, kw_only=True):
    """A delivery with its events, as their receiver gets them: none unless asked for, and none if the caller may
    not see personal data."""

    events: list[Raw]


def delivery_view(delivery: EventDelivery, key: str, *, personal: bool) -> BusDeliveryView:
    """A delivery as it is shown, without personal data unless `personal`: a receiver may answer with what it got."""
    return BusDeliveryView(
        id=delivery.id,
        key=key,
        sequence=delivery.sequence,
        status=delivery.status,
        count=delivery.count,
        bytes=delivery.size,
        first_at=format_instant(delivery.first_at),
        cut_at=format_instant(delivery.cut_at),
        retry_at=format_maybe(delivery.retry_at),
        settled_at=format_maybe(delivery.settled_at),
        made=delivery.made,
        failures=delivery.failures,
        attempts=[attempt_view(each, personal=personal) for each in delivery.attempts],
        redacted=not personal,
    )


def whole_delivery_view(
    delivery: EventDelivery, key: str, events: tuple[bytes, ...], *, personal: bool
) -> WholeBusDeliveryView:
    shown = asdict(delivery_view(delivery, key, personal=personal))
    return WholeBusDeliveryView(**shown, events=[Raw(event) for event in events])


BUS_DELIVERY = "/bus/deliveries/{delivery_id:str}"
_STATUS = Parameter(
    name="status", description="Only those in this status.", schema={"type": "string", "enum": [*DeliveryStatus]}
)
_SINCE = Parameter(
    name="since", schema={"type": "string", "examples": ["17", "2026-12-24T14:00:00Z"]},
    description="Only those behind this sequence, or those that were cut at this time or later.",
)  # fmt: skip
_EVENTS = Parameter(
    name="events", schema={"type": "boolean"},
    description="`true`: with the events. Those of a settled delivery are read from the log; 410 once it has forgotten "
                "them, or where they lie too far apart in it.",
)  # fmt: skip


class BusDeliveriesResource(Resource):
    def __init__(self, lookup: DeliveryLookup) -> None:
        self._lookup = lookup

    @Route(
        "GET", BUS_SUBSCRIPTION + "/deliveries", summary="List the deliveries of a subscription, the newest first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[BusDeliveryView]}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(_STATUS, _SINCE, NAMESPACE), segments=SEGMENTS, paged=True,
    )  # fmt: skip
    async def list_bus_deliveries(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        asked = paging.read_page(request, DeliveryPlace)
        choice = choose_deliveries(paging.first(request, _STATUS.name), paging.first(request, _SINCE.name))
        found = await self._lookup.page(namespace_of(request), key, choice, before=asked.after, limit=asked.limit)
        headers = paging.links(request, asked, found, place_of_delivery)
        personal = sees_personal_data(request)
        return bodies.answer([delivery_view(each, key, personal=personal) for each in found], headers=headers)

    @Route(
        "GET", BUS_DELIVERY, summary="Show a delivery, and what came of its attempts.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: WholeBusDeliveryView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.GONE), parameters=(_EVENTS, NAMESPACE),
        segments={"delivery_id": {"type": "string", "description": "The id of the delivery, its `webhook-id`."}},
    )  # fmt: skip
    async def get_bus_delivery(self, request: Request[Any, Any, Any], delivery_id: FromPath[str]) -> Response[bytes]:
        personal, asks = sees_personal_data(request), paging.read_flag(request, _EVENTS.name)
        owned = await self._lookup.get(namespace_of(request), delivery_id)
        events = await self._lookup.read_events(owned) if asks and personal else ()
        return bodies.answer(whole_delivery_view(owned.delivery, owned.subscription.key, events, personal=personal))


class BusDeadLetterView(Struct, frozen=True, kw_only=True):
    """Events that were not taken; `id` is their delivery's. `reason` is `attempts` where they were refused too often,
    `age` where for too long, `backlog` where too many waited: then there is no delivery, and a retry replays the events
    while the log has them; where it is not known in which log they lie, nothing `can_be_retried`.
    `first_at` is when the first of them arrived, `last_at` when the last did, where that is told. The first three and
    the last three of the `made` attempts are shown."""

    id: str
    namespace: str
    key: str
    reason: DeathReason
    died_at: Timestamp
    count: int
    bytes: int
    first_at: Timestamp
    last_at: Timestamp | None
    made: int
    attempts: list[BusAttemptView]
    can_be_retried: bool
    redacted: bool = False


class WholeBusDeadLetterView(BusDeadLetterView, frozen=True, kw_only=True):
    """A dead letter with its events, as their receiver would have got them: none if the caller may not see personal
    data."""

    events: list[Raw]


def bus_letter_view(letter: BusDeadLetter, *, personal: bool) -> BusDeadLetterView:
    """A dead letter as it is shown, without personal data unless `personal`: a receiver may answer with what it got."""
    return BusDeadLetterView(
        id=letter.id,
        namespace=letter.namespace,
        key=letter.key,
        reason=letter.reason,
        died_at=format_instant(letter.died_at),
        count=letter.count,
        bytes=letter.size,
        first_at=format_instant(letter.first_at),
        last_at=format_maybe(letter.last_at),
        made=letter.made,
        attempts=[attempt_view(each, personal=personal) for each in letter.attempts],
        can_be_retried=letter.can_be_retried,
        redacted=not personal,
    )


def whole_bus_letter_view(letter: BusDeadLetter, *, personal: bool) -> WholeBusDeadLetterView:
    events = [Raw(event) for event in letter.events] if personal else []
    return WholeBusDeadLetterView(**asdict(bus_letter_view(letter, personal=personal)), events=events)


BUS_LETTERS = "/bus/dead-letters"
BUS_LETTER = BUS_LETTERS + "/{letter_id:str}"
_NAMED = Parameter(name="key", description="Only those of the subscription with this key.", schema={"type": "string"})
_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
_route = partial(
    Route, segments={"letter_id": {"type": "string", "description": "The id of the dead letter: its delivery's."}},
    parameters=(NAMESPACE,),
)  # fmt: skip


class BusRetryFilter(Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead letters are retried: those of the subscription with this key; without one, all of a namespace."""

    key: Annotated[str, Meta(min_length=1)] | UnsetType = UNSET


class BusRetryView(Struct, frozen=True):
    """The dead letter whose delivery is open again."""

    id: str


class BusRetriedView(Struct, frozen=True):
    """How many deliveries are open again. If there are `more`, ask again."""

    retried: int
    more: bool


_filter_decoder = msgspec.json.Decoder(BusRetryFilter)


class BusDeadLettersResource(Resource):
    def __init__(self, flow: BusDeadLetterFlow) -> None:
        self._flow = flow

    @_route(
        "GET", BUS_LETTERS, summary="List the dead letters of a namespace's subscriptions, the newest first.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[BusDeadLetterView]}, parameters=(_NAMED, NAMESPACE),
        paged=True,
    )  # fmt: skip
    async def list_bus_dead_letters(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked = paging.read_page(request, BusLetterPlace)
        letters = await self._flow.page(
            namespace_of(request), key=paging.first(request, "key"), before=asked.after, limit=asked.limit
        )
        headers = paging.links(request, asked, letters, place_of_letter)
        personal = sees_personal_data(request)
        return bodies.answer([bus_letter_view(letter, personal=personal) for letter in letters], headers=headers)

    @_route(
        "GET", BUS_LETTER, summary="Show a dead letter with its events.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: WholeBusDeadLetterView}, problems=(_NOT_FOUND,),
    )  # fmt: skip
    async def get_bus_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._flow.get(namespace_of(request), letter_id)
        return bodies.answer(whole_bus_letter_view(letter, personal=sees_personal_data(request)))

    @_route(
        "POST", BUS_LETTER + "/retry", summary="Deliver a dead letter again, with the id that it had.",
        act="delivery.retry", who=OPERATE_NAMESPACE, answers={HTTPStatus.ACCEPTED: BusRetryView},
        problems=(_NOT_FOUND, _CONFLICT, HTTPStatus.GONE),
    )  # fmt: skip
    async def retry_bus_dead_letter(self, request: Request[Any, Any, Any], letter_id: FromPath[str]) -> Response[bytes]:
        letter = await self._flow.retry(namespace_of(request), letter_id)
        return bodies.answer(BusRetryView(letter.id), HTTPStatus.ACCEPTED)

    @_route(
        "POST", BUS_LETTERS + "/retry",
        summary=f"Deliver the dead letters of a namespace again, or those of one key, about {MOST_AT_ONCE} a call.",
        act="delivery.retry-many", who=OPERATE_NAMESPACE, body=BusRetryFilter, body_required=False,
        answers={HTTPStatus.OK: BusRetriedView},
    )  # fmt: skip
    async def retry_bus_dead_letters(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        content = await request.body()
        wanted = decode_body(content, _filter_decoder) if content.strip() else BusRetryFilter()
        key = "" if wanted.key is UNSET else wanted.key
        retried = await self._flow.retry_all(namespace_of(request), key=key)
        return bodies.answer(BusRetriedView(retried.retried, retried.more))

    @_route(
        "POST", BUS_LETTER + "/discard", summary="Give a dead letter up.",
        act="delivery.discard", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None}, problems=(_NOT_FOUND,),
    )  # fmt: skip
    async def discard_bus_dead_letter(
        self, request: Request[Any, Any, Any], letter_id: FromPath[str]
    ) -> Response[None]:
        await self._flow.discard(namespace_of(request), letter_id)
        return bodies.empty()
