"""`/callbacks/{credentialId}`: what providers tell later of messages.

Anyone on the network may call; the signature decides. So callbacks have a room of their own, in which a slow caller
loses its place to the next one.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from litestar import Request, Response
from litestar.params import FromPath

from services.api.http import bodies
from services.api.http.acts import UNRECORDED
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from shared.core.errors import Invalid, NotFound, Unavailable
from shared.core.ids import read_uuid
from shared.messages.receipts import CallbackFlow
from shared.providers.base import MOST_BYTES, CallbackRequest


class SlowBodies:
    """Bodies on their way, at most `most`, each for at most `seconds`."""

    def __init__(self, *, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._reading: dict[asyncio.Timeout, str] = {}

    async def read(self, app_id: str, body: Awaitable[bytes]) -> bytes:
        """The body of a request to this app. Raises `Unavailable` where it takes too long to come."""
        if len(self._reading) >= self._most:
            self._end_one()
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                self._reading[limit] = app_id
                return await body
        except TimeoutError:
            raise Unavailable("the body did not come soon enough") from None
        finally:
            self._reading.pop(limit, None)

    def _end_one(self) -> None:
        """Drop the oldest body of the app with the most."""
        (app_id, _), *_ = Counter(self._reading.values()).most_common(1)
        oldest = next(limit for limit, owner in self._reading.items() if owner == app_id)
        del self._reading[oldest]
        oldest.reschedule(asyncio.get_running_loop().time())


class AppPlaces:
    """Work that goes on for apps, so much at `most`, half of it for one app."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    @contextmanager
    def take(self, app_id: str) -> Iterator[None]:
        """A place for one more. Raises `Unavailable` where there is none."""
        if self._taken.total() >= self._most or self._taken[app_id] >= self._most // 2:
            raise Unavailable("callbacks come faster than they can be stored")
        self._taken[app_id] += 1
        try:
            yield
        finally:
            self._taken[app_id] -= 1
            self._taken += Counter()  # forgets who has none


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
        summary="Accept a provider's report about the message in the URL.",
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
        return bodies.empty()

    def _url(self, request: Request[Any, Any, Any], *parts: str) -> str:
        """The URL that the provider called: proxies may have changed everything before the path, and its quoting."""
        path = "/".join(quote(part, safe="") for part in parts if part)
        query = request.scope["query_string"].decode("latin-1")
        return f"{self._public_url}/callbacks/{path}" + (f"?{query}" if query else "")


def _read_id(text: str) -> str:
    try:
        return read_uuid(text, field="credentialId")
    except Invalid:
        raise NotFound("no provider account has this callback URL", field="credentialId") from None
