"""`/apps/{appId}/suppressions`: who gets nothing more of an app, and of which of its lists."""

from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath

from services.api.accounts.apps import APP, app_of
from services.api.http import paging, wire
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from services.api.messages.recipients import address_of
from services.api.messages.suppression_body import (
    SuppressionBody,
    SuppressionView,
    read_suppression,
    suppression_view,
)
from shared.domain.accounts.apps import check_not_deleting
from shared.domain.errors import Forbidden, Invalid, NotFound
from shared.domain.instants import from_ms, ms
from shared.domain.messages.recipients import ADDRESS_CHARACTERS, spellings_of
from shared.runtime.clock import Clock
from shared.store import Store

SUPPRESSIONS = APP + "/suppressions"
ADDRESS = Parameter(
    name="address",
    description="Only those of this address, by all channels and of all lists, in any spelling but that of a phone "
    "number without its country code. Not for viewers.",
    schema={"type": "string"},
)

_ID = {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "The id of the suppression."}


class SuppressionsResource(Resource):
    """The routes of suppressions, one at a time."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    @Route(
        "GET", SUPPRESSIONS, summary="List who gets nothing more of an app, in the order of ids.",
        who=VIEW_APP, answers={HTTPStatus.OK: list[SuppressionView]}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(ADDRESS,), paged=True,
    )  # fmt: skip
    async def list_suppressions(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        asked, app = paging.read_page(request, str), await app_of(self._store, app_id)
        whole, addresses = sees_personal_data(request), _read_addresses(request)
        if addresses and not whole:
            raise Forbidden("a viewer does not look for addresses", field="address")
        found = await self._store.suppressions.page(
            app.id, addresses=addresses, after=asked.after or "", limit=asked.limit
        )
        headers = paging.links(request, asked, found, lambda suppression: suppression.id)
        return wire.answer([suppression_view(each, whole=whole) for each in found], headers=headers)

    @Route(
        "POST", SUPPRESSIONS,
        summary="Have somebody get nothing more of an app, or of one of its lists. Whoever is there already stays; a "
                "bar takes the place of an unsubscription.",
        act="suppression.create", who=OPERATE_APP, body=SuppressionBody,
        answers={HTTPStatus.CREATED: SuppressionView, HTTPStatus.OK: SuppressionView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def create_suppression(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        content, app = await request.body(), await app_of(self._store, app_id)
        check_not_deleting(app, app.id)
        wanted = read_suppression(content, app.id, at=from_ms(ms(self._clock.now())))
        there = await self._store.suppressions.add([wanted])
        stored = await self._store.suppressions.get(app.id, wanted.id) if there else wanted
        return wire.answer(suppression_view(stored or wanted), HTTPStatus.OK if there else HTTPStatus.CREATED)

    @Route(
        "DELETE", SUPPRESSIONS + "/{suppression:str}",
        summary="Have somebody get messages again. If it was a bar and the recipient has unsubscribed "
                "too, the unsubscription stays: the same request again deletes it.",
        act="suppression.delete", who=OPERATE_APP, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND,), segments={"suppression": _ID},
    )  # fmt: skip
    async def delete_suppression(self, app_id: FromPath[str], suppression: FromPath[str]) -> Response[None]:
        app = await app_of(self._store, app_id)
        if await self._store.suppressions.remove(app.id, suppression) is None:
            raise NotFound("there is no suppression with this id", field="suppression", value=suppression)
        return wire.empty()


def _read_addresses(request: Request[Any, Any, Any]) -> list[str]:
    text = address_of(request, ADDRESS.name)
    if text and (len(text) > ADDRESS_CHARACTERS or not text.strip()):
        raise Invalid("address must be one that messages can have", field=ADDRESS.name)
    return sorted(spellings_of(text)) if text else []
