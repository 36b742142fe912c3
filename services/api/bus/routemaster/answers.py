"""How the published routes answer: bare JSON, empty successes, and a 400 for input that breaks a rule."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Response
from litestar.types import Receive, Scope, Send

from services.api.http.errors import BadInput
from shared.domain.errors import Invalid

JSON = "application/json"


def answer(value: object, status: HTTPStatus = HTTPStatus.OK) -> Response[bytes]:
    """The value as JSON, with no charset beside the media type and no newline behind it."""
    return Response(msgspec.json.encode(value), status_code=status, media_type=JSON)


@lru_cache
def answer_nothing(status: HTTPStatus = HTTPStatus.NO_CONTENT) -> Response[None]:
    """A success that says nothing more: no body, and no media type of one."""
    return _Nothing(None, status_code=status)


class _Nothing(Response[None]):
    """Litestar would write `null` where a status allows a body."""

    def to_asgi_response(self, *_: object, **__: object) -> Any:
        length = [] if self.status_code == HTTPStatus.NO_CONTENT else [(b"content-length", b"0")]

        async def send_head(_: Scope, __: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": self.status_code or 204, "headers": length})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        return send_head


@contextmanager
def refuse_as_bad_input() -> Iterator[None]:
    """Refuse what is `Invalid` inside as `BadInput`."""
    try:
        yield
    except Invalid as error:
        raise BadInput(error.reason, field=error.field, value=error.value) from None
