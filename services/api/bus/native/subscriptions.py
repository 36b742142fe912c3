"""`/bus/subscriptions`: keys of the caller's own. A caller with a role over another's namespace names it by
`?namespace=` to see and move what is there, not to add to it."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath

from services.api.accounts.namespaces import CALLERS_NAMESPACE, NAMESPACE, namespace_of, own_namespace
from services.api.bus.native.subscription_body import (
    KEY,
    EventSubscriptionBody,
    SecretRotationBody,
    read_keep_hours,
    read_wish,
)
from services.api.bus.native.subscription_view import EventSubscriptionView, subscription_view
from services.api.http import paging, wire
from services.api.http.acts import note_change, reason_of
from services.api.http.identity import look_again
from services.api.http.rights import KNOWN, OPERATE_NAMESPACE, OWN_NAMESPACE, VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Resource, Route
from shared.domain.bus.subscriptions import EventSubscription
from shared.domain.bus.topics import PrivateTopic
from shared.domain.errors import Forbidden, Invalid
from shared.flow.bus.standing import QueueStandings
from shared.flow.bus.subscribing import MadeSubscription, Subscribing
from shared.outgoing.checks import CheckUrl
from shared.runtime.bus_settings import BusSettings

BUS_SUBSCRIPTIONS = "/bus/subscriptions"
BUS_SUBSCRIPTION = BUS_SUBSCRIPTIONS + "/{key:str}"

_NOT_FOUND, _CONFLICT = HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
SEGMENTS = {"key": {"type": "string", "pattern": f"^{KEY.pattern}$", "description": "The key of the subscription."}}
_route = partial(
    Route, segments=SEGMENTS, answers={HTTPStatus.OK: EventSubscriptionView}, problems=(_NOT_FOUND,),
    parameters=(NAMESPACE,),
)  # fmt: skip


class BusSubscriptionsResource(Resource):
    """The routes of native subscriptions."""

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
        return wire.answer(await self._show_all(request, page), headers=headers)

    @_route("GET", BUS_SUBSCRIPTION, summary="Show a subscription, never its secret.", who=VIEW_NAMESPACE)
    async def get_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        [shown] = await self._show_all(request, [await self._subscribing.get(namespace_of(request), key)])
        return wire.answer(shown)

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
        return wire.empty()

    @_route(
        "POST", BUS_SUBSCRIPTION + "/pause", summary="Have nothing delivered; what comes is collected.",
        act="subscription.pause", who=OPERATE_NAMESPACE, problems=(_NOT_FOUND, _CONFLICT),
    )  # fmt: skip
    async def pause_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        moved = await self._subscribing.pause(namespace_of(request), key, reason=reason_of(request))
        return wire.answer(_show(request, moved))

    @_route(
        "POST", BUS_SUBSCRIPTION + "/resume", summary="Have what waits delivered, after a pause or a suspension.",
        act="subscription.resume", who=OPERATE_NAMESPACE, problems=(_NOT_FOUND, _CONFLICT),
    )  # fmt: skip
    async def resume_bus_subscription(self, request: Request[Any, Any, Any], key: FromPath[str]) -> Response[bytes]:
        return wire.answer(_show(request, await self._subscribing.resume(namespace_of(request), key)))

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
    return wire.answer(subscription_view(made.subscription, secret=made.secret), status)


def _note(before: EventSubscription | None, after: EventSubscription) -> None:
    """Note the change for the audit without secrets: headers may contain credentials."""
    was = None if before is None else subscription_view(before, personal=False)
    note_change(was, subscription_view(after, personal=False))
