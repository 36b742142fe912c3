"""`/callbacks/{credentialId}`: what providers tell later of messages. Anybody may call; the provider's signature says
who is heard.

Little can be taken from others: the credential must exist before a byte of the body is read, a body must come soon, and
so many callbacks at once are all that a process works on, half of them for one app (`callback_rooms`). A provider that
finds no room is told to come again, and all of them do.
"""

from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.params import FromPath

from services.api.http import wire
from services.api.http.acts import UNRECORDED
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from services.api.messages.callback_rooms import AppPlaces, SlowBodies
from shared.domain.errors import Invalid, NotFound
from shared.domain.ids import read_uuid
from shared.flow.messages.callbacks import CallbackFlow
from shared.providers.callbacks import MOST_BYTES, CallbackRequest

CALLBACKS_PATH = "/callbacks/{credential_id:str}"
AT_ONCE = 256
BODY_SECONDS = 10.0

_SEGMENTS = {
    "credential_id": {"type": "string", "format": "uuid", "description": "The id of the credential."},
    "message_id": {"type": "string", "description": "The message and its attempt, as the provider was told them."},
}
_route = partial(
    Route, act=UNRECORDED, who=EVERYBODY, body=str, body_media=("*/*",), answers={HTTPStatus.NO_CONTENT: None},
    problems=(HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
    segments=_SEGMENTS, max_body_bytes=MOST_BYTES,
    any_query=True,  # providers add parameters of their own, and sign them
)  # fmt: skip


class CallbacksResource(Resource):
    """The routes of callbacks. Providers call them below the public URL."""

    def __init__(self, flow: CallbackFlow, *, public_url: str) -> None:
        self._flow = flow
        self._public_url = public_url.rstrip("/")
        self._bodies = SlowBodies(most=AT_ONCE, seconds=BODY_SECONDS)
        self._places = AppPlaces(most=AT_ONCE)

    @_route(
        "POST", CALLBACKS_PATH,
        summary="Take what a provider tells of messages of a credential. The provider's signature is what lets it in.",
    )  # fmt: skip
    async def take_callback(self, request: Request[Any, Any, Any], credential_id: FromPath[str]) -> Response[None]:
        return await self._take(request, credential_id, "")

    @_route(
        "POST", CALLBACKS_PATH + "/{message_id:str}",
        summary="Take what a provider tells of one message, which stands in the URL that it was given.",
    )  # fmt: skip
    async def take_message_callback(
        self, request: Request[Any, Any, Any], credential_id: FromPath[str], message_id: FromPath[str]
    ) -> Response[None]:
        return await self._take(request, credential_id, message_id)

    async def _take(self, request: Request[Any, Any, Any], credential_id: str, message: str) -> Response[None]:
        credential = await self._flow.require(_read_id(credential_id))
        body = await self._bodies.read(credential.app_id, request.body())
        with self._places.take(credential.app_id):
            headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.scope["headers"]
            }
            url = self._url(request, credential_id, message)
            await self._flow.take(credential, CallbackRequest(url, headers, body, message))
        return wire.empty()

    def _url(self, request: Request[Any, Any, Any], *parts: str) -> str:
        """The URL that the provider called: proxies may have changed everything before the path, and its quoting."""
        path = "/".join(quote(part, safe="") for part in parts if part)
        query = request.scope["query_string"].decode("latin-1")
        return f"{self._public_url}/callbacks/{path}" + (f"?{query}" if query else "")


def _read_id(text: str) -> str:
    try:
        return read_uuid(text, field="credentialId")
    except Invalid:
        raise NotFound("there is nobody here to be told", field="credentialId") from None
