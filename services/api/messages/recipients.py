"""`/apps/{appId}/recipients/{address}`: one person's messages forget who they were to."""

from http import HTTPStatus

from litestar import Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.accounts.apps import APP, app_of
from services.api.http import wire
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Resource, Route
from shared.domain.messages.recipients import ADDRESS_CHARACTERS, mask
from shared.flow.messages.redacting import RecipientRedaction
from shared.store import Store

_ADDRESS = {
    "type": "string",
    "minLength": 1,
    "maxLength": ADDRESS_CHARACTERS,
    "description": "An address as somebody writes it. Phone numbers begin with + and the country.",
}


def _address_in(path: str) -> str:
    """The address that is the end of a path: it may have slashes of its own."""
    return path.removeprefix("/")


def _mask(path: str) -> str:
    return mask(_address_in(path))


class RedactedView(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many messages have forgotten their recipient, and whether there may be more: then ask again."""

    redacted: int
    more: bool


class RecipientsResource(Resource):
    """The route of recipients."""

    def __init__(self, store: Store, redaction: RecipientRedaction) -> None:
        self._store = store
        self._redaction = redaction

    @Route(
        "DELETE", APP + "/recipients/{address:path}",
        summary="Have an app's messages to one address, by all channels, forget it, and what providers said of them. "
                "They count as before. Waiting messages are still sent: to stop that, suppress the address first.",
        act="recipient.redact", who=OPERATE_APP, answers={HTTPStatus.OK: RedactedView},
        problems=(HTTPStatus.NOT_FOUND,), segments={"address": _ADDRESS}, masks={"address": _mask},
    )  # fmt: skip
    async def redact_recipient(self, app_id: FromPath[str], address: FromPath[str]) -> Response[bytes]:
        app = await app_of(self._store, app_id)
        redacted, more = await self._redaction.redact(app.id, _address_in(address))
        return wire.answer(RedactedView(redacted=redacted, more=more))
