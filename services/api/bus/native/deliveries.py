"""`/bus/subscriptions/{key}/deliveries` and `/bus/deliveries/{id}`: what was sent to a receiver, and what came of it.
`?namespace=` names another namespace, over which the caller needs a role."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath

from services.api.accounts.namespaces import NAMESPACE, namespace_of
from services.api.bus.native.delivery_view import (
    BusDeliveryView,
    WholeBusDeliveryView,
    delivery_view,
    whole_delivery_view,
)
from services.api.bus.native.subscriptions import BUS_SUBSCRIPTION, SEGMENTS
from services.api.http import paging, wire
from services.api.http.rights import VIEW_NAMESPACE, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from shared.domain.bus.deliveries import DeliveryPlace, DeliveryStatus, choose_deliveries, place_of_delivery
from shared.flow.bus.delivery_lookup import DeliveryLookup

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
    """The routes of deliveries."""

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
        return wire.answer([delivery_view(each, key, personal=personal) for each in found], headers=headers)

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
        return wire.answer(whole_delivery_view(owned.delivery, owned.subscription.key, events, personal=personal))
