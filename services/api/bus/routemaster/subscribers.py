"""`/subscriber` and `/subscription`: a client's one subscription, as Routemaster's clients send it, and the list of all
clients' subscriptions.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct

from services.api.bus.routemaster.topics import SEGMENTS, OwnerNames, answer, answer_nothing, refuse_as_bad_input
from services.api.http.bodies import decode_body, hide_path
from services.api.http.identity import caller_of, look_again
from services.api.http.rights import OnBus
from services.api.http.routes import Resource, Route
from shared.accounts.rules.callers import Caller
from shared.bus.rules.subscriptions import PUBLISHED_KEY, EventSubscription, SubscriptionWish, share_topics
from shared.bus.standing import QueueStanding, QueueStandings
from shared.bus.subscriptions import LONGEST_TIMEOUT_MS, Subscribing, read_published_wish
from shared.core.errors import NotFound
from shared.drivers.http.checks import CheckUrl
from shared.runtime.bus_settings import BusSettings
from shared.runtime.cached import Coalescer
from shared.store import Store


class PublishedSubscriptionBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's subscription. `timeout` and `max` stay as they are if they are left out."""

    topics: Annotated[list[str], Meta(description="All topics of the subscription; those left out are left.")]
    callback: Annotated[
        str,
        Meta(
            description="The receiver of events: an `https` URL without a query. A user name in it is used as `uuid`.",
            pattern="^https?://",
            examples=["https://app.example.com/events"],
        ),
    ]
    uuid: Annotated[str | None, Meta(description="The user name of deliveries' basic auth.")] = None
    timeout: Annotated[
        Annotated[int, Meta(ge=0, le=LONGEST_TIMEOUT_MS)] | None,
        Meta(description="For how long an event waits for others, in milliseconds; of a new one 500."),
    ] = None
    max: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="How many events a delivery has at most; of a new one 100. None has over 10,000."),
    ] = None


_decoder = msgspec.json.Decoder(PublishedSubscriptionBody)


def read_subscription(content: bytes, namespace: str, *, check_url: CheckUrl, allow_http: bool) -> SubscriptionWish:
    """The body's wish for the namespace's published subscription. Raises `Invalid`."""
    body = decode_body(content, _decoder)
    return read_published_wish(
        namespace,
        topics=body.topics,
        callback=body.callback,
        uuid=body.uuid,
        timeout_ms=body.timeout,
        max_events=body.max,
        check_url=check_url,
        allow_http=allow_http,
    )


_PAGE = 500
PublishedQueues = tuple[Sequence[EventSubscription], Mapping[str, QueueStanding]]


class PublishedEvents(Struct, frozen=True):
    """How many events were sent and wait, and since when the oldest of these waits, in seconds since the epoch."""

    sent: int
    queued: int
    oldest: int | None


class PublishedSubscription(Struct, frozen=True):
    """A client's subscription. `subscriber` is the caller's own token, or the name of another's. `uuid` and the path of
    `callback` are shown to their owner and to the bus's root."""

    subscriber: str
    uuid: str | None
    callback: str
    max_events: int
    timeout: int
    topics: tuple[str, ...]
    events: PublishedEvents


class PublishedSubscribersResource(Resource):
    def __init__(
        self,
        store: Store,
        subscribing: Subscribing,
        standings: QueueStandings,
        settings: BusSettings,
        *,
        check_url: CheckUrl,
    ) -> None:
        self._subscribing = subscribing
        self._standings = standings
        self._settings = settings
        self._check_url = check_url
        self._names = OwnerNames(store)
        self._list = Coalescer[None, PublishedQueues](self._find_all)

    @Route(
        "GET", "/subscribers", summary="List the subscriptions of all clients, and their figures.",
        who=OnBus.EITHER, answers={HTTPStatus.OK: list[PublishedSubscription]},
    )  # fmt: skip
    async def list_subscribers(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        found, standings = await self._list(None)
        names = await self._names.look_up(request, [each.namespace for each in found])
        caller = caller_of(request)
        return answer([
            _show(each, names[each.namespace], standings[each.queue], caller) for each in found
        ])  # fmt: skip

    @Route(
        "GET", "/subscriptions", summary="The same list, by its other name.",
        who=OnBus.EITHER, answers={HTTPStatus.OK: list[PublishedSubscription]},
    )  # fmt: skip
    async def list_client_subscriptions(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        return await self.list_subscribers(request)

    @Route(
        "POST", "/subscriber", summary="Make the caller's subscription, or replace it.",
        act="subscription.replace", who=OnBus.CLIENT, body=PublishedSubscriptionBody,
        answers={HTTPStatus.NO_CONTENT: None},
    )  # fmt: skip
    async def put_subscriber(self, request: Request[Any, Any, Any]) -> Response[None]:
        content = await request.body()
        await look_again(request)
        with refuse_as_bad_input():
            wish = read_subscription(
                content,
                caller_of(request).namespace,
                check_url=self._check_url,
                allow_http=self._settings.allow_http,
            )
            await self._subscribing.subscribe(wish)
            # Who subscribes is there again: this API has no other way to say so. It may be removed by now.
            with suppress(NotFound):
                await self._subscribing.resume(wish.namespace, wish.key)
        return answer_nothing()

    @Route(
        "POST", "/subscription", summary="The same, by its other name.",
        act="subscription.replace", who=OnBus.CLIENT, body=PublishedSubscriptionBody,
        answers={HTTPStatus.NO_CONTENT: None},
    )  # fmt: skip
    async def put_client_subscription(self, request: Request[Any, Any, Any]) -> Response[None]:
        return await self.put_subscriber(request)

    @Route(
        "DELETE", "/subscriber", summary="Remove the caller's subscription, with all that waits for it.",
        act="subscription.delete", who=OnBus.EITHER, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def delete_subscriber(self, request: Request[Any, Any, Any]) -> Response[None]:
        await self._subscribing.unsubscribe(_subscriber(request), PUBLISHED_KEY)
        return answer_nothing()

    @Route(
        "DELETE", "/subscriber/topics/{topic:str}", summary="Take a topic from the caller's subscription.",
        act="subscription-topic.delete", who=OnBus.EITHER, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND,), segments=SEGMENTS,
    )  # fmt: skip
    async def leave_topic(self, request: Request[Any, Any, Any], topic: FromPath[str]) -> Response[None]:
        await self._subscribing.leave_topic(_subscriber(request), PUBLISHED_KEY, topic)
        return answer_nothing()

    async def _find_all(self, asked: Sequence[None]) -> Sequence[PublishedQueues]:
        """All published subscriptions with their figures. Concurrent callers share one read."""
        after, found, names = "", list[EventSubscription](), dict[str, str]()
        while page := await self._subscribing.page_published(after=after, limit=_PAGE):
            found += [share_topics(each, names) for each in page]
            after = page[-1].id
        return [(found, await self._standings.read([each.queue for each in found]))] * len(asked)


def _subscriber(request: Request[Any, Any, Any]) -> str:
    """The namespace of the subscription. Raises `NotFound` for root, which has none."""
    caller = caller_of(request)
    if caller.is_admin:
        raise NotFound("the bus's root has no subscription")
    return caller.namespace


def _show(subscription: EventSubscription, name: str, standing: QueueStanding, caller: Caller) -> PublishedSubscription:
    is_shown = caller.is_admin or caller.namespace == subscription.namespace
    oldest = None if standing.oldest is None else int(standing.oldest.timestamp())
    return PublishedSubscription(
        subscriber=name,
        uuid=(subscription.uuid or None) if is_shown else None,
        callback=subscription.callback if is_shown else hide_path(subscription.callback),
        max_events=subscription.max_events,
        timeout=subscription.timeout_ms,
        topics=subscription.topics,
        events=PublishedEvents(standing.sent, standing.queued, oldest),
    )
