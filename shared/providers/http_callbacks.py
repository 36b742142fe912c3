"""The callbacks of a server of the kind `http`: JSON, signed by the specification Standard Webhooks.

    {"message": "0190b5a2…~1", "state": "delivered", "at": "2026-12-24T14:00:00Z"}

A body is one of these, or a list of them. `message` is the value of `carillon-message`, and `id` the server's own id;
one of them is enough. `state` is `sent`, `delivered`, `read` or `failed`. With `failed`, `reason` is one of Carillon's,
and `detail` is free text.
"""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from shared.domain.messages.answers import Reason
from shared.domain.messages.ledger import MessageState
from shared.outgoing.signing import Forged, verify_webhook
from shared.providers.callbacks import (
    Callback,
    CallbackNews,
    CallbackRequest,
    NotSigned,
    Unreadable,
    read_epoch,
    read_json,
    tell_refusal,
)
from shared.providers.details import tell

_REACHED = {"sent": MessageState.SENT, "delivered": MessageState.DELIVERED, "read": MessageState.READ}


class HttpNews(Struct, frozen=True):
    """The news of one message."""

    state: Literal["sent", "delivered", "read", "failed"]
    message: str = ""
    id: str | int = ""
    reason: Reason = Reason.UNDELIVERED
    detail: str = ""
    at: Annotated[datetime, Meta(tz=True)] | None = None


_one = msgspec.json.Decoder(HttpNews)
_many = msgspec.json.Decoder(list[HttpNews])


def read_http_callback(request: CallbackRequest, *secrets: str) -> Callback:
    """Read a request that is signed with one of these secrets.

    Raises:
        NotSigned: it is signed with none of them.
        Unreadable: it does not have the form above.
    """
    try:
        timestamp = verify_webhook(request.headers, request.body, *secrets)
    except Forged as error:
        raise NotSigned(str(error)) from None
    told = tuple(_news(each, request.message, secrets) for each in _read(request.body))
    return Callback(news=told, at=read_epoch(timestamp))


def _read(body: bytes) -> list[HttpNews]:
    return read_json(body, _many) if body.lstrip().startswith(b"[") else [read_json(body, _one)]


def _news(told: HttpNews, key: str, secrets: tuple[str, ...]) -> CallbackNews:
    key, provider_id = told.message or key, str(told.id)
    if not (key or provider_id):
        raise Unreadable("the callback names no message: message or id is needed", is_json=True)
    if told.state in _REACHED:
        return CallbackNews(key=key, provider_id=provider_id, state=_REACHED[told.state], at=told.at)
    return tell_refusal(told.reason, tell(told.detail, "", secrets), key=key, provider_id=provider_id, at=told.at)
