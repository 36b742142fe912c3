"""`/apps/{appId}/recipients`: one person's messages forget who they were to."""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.apps import APP, app_of
from services.api.http import wire
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Parameter, Resource, Route
from shared.domain.errors import Invalid
from shared.domain.messages.recipients import ADDRESS_CHARACTERS, check_plus, mask
from shared.flow.messages.redacting import RecipientRedaction
from shared.store import Store

_ABOUT = "An address as people write it. Phone numbers begin with + and the country."
_ADDRESS = {"type": "string", "minLength": 1, "maxLength": ADDRESS_CHARACTERS}
_RECIPIENTS = APP + "/recipients"
_IN_QUERY = Parameter(name="address", description=_ABOUT, schema=_ADDRESS, required=True)


class RedactedView(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many messages have forgotten their recipient, and whether there may be more: then ask again."""

    redacted: int
    more: bool


_route = partial(
    Route, act="recipient.redact", who=OPERATE_APP, answers={HTTPStatus.OK: RedactedView},
    problems=(HTTPStatus.NOT_FOUND,), masks={"address": mask},
)  # fmt: skip


class RecipientsResource(Resource):
    """The routes of recipients. An address in the path is exactly what was sent. Programs and proxies on the way may
    change one with slashes or dots, but none in the query."""

    def __init__(self, store: Store, redaction: RecipientRedaction) -> None:
        self._store = store
        self._redaction = redaction

    @_route(
        "DELETE", _RECIPIENTS,
        summary="Have an app's messages to one address, by all channels, forget it, and what providers said of them. "
                "They count as before. Waiting messages are still sent: to stop that, suppress the address first.",
        parameters=(_IN_QUERY,),
    )  # fmt: skip
    async def redact_recipient(self, request: Request[Any, Any, Any], app_id: FromPath[str]) -> Response[bytes]:
        return await self._redact(app_id, address_of(request, _IN_QUERY.name))

    @_route(
        "DELETE", _RECIPIENTS + "/{address:path}",
        summary="The same, with the address in the path, each slash as %2F.",
        segments={"address": _ADDRESS | {"description": _ABOUT}},
    )  # fmt: skip
    async def redact_recipient_in_path(self, app_id: FromPath[str], address: FromPath[str]) -> Response[bytes]:
        return await self._redact(app_id, address)

    async def _redact(self, app_id: str, address: str) -> Response[bytes]:
        app = await app_of(self._store, app_id)
        redacted, more = await self._redaction.redact(app.id, address)
        return wire.answer(RedactedView(redacted=redacted, more=more))


def address_of(request: Request[Any, Any, Any], name: str) -> str:
    """The address that this parameter of the query has, `""` without one. Raises `Invalid` for several, and
    for a raw `+`, which means a blank there."""
    values = request.query_params.getall(name, [])
    if len(values) > 1 or any("\ufffd" in value for value in values):
        raise Invalid(f"{name} must be one address in UTF-8", field=name)
    address = str(values[0]) if values else ""
    if b"+" in request.scope["query_string"]:
        check_plus(address, name)
    return address
