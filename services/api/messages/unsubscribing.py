"""`/u/{token}`: a recipient's own link. A recipient who opens it sees a page, as programs that look at links do, and
changes nothing. A POST to it unsubscribes: by the page's button, or by the one of a mail program (RFC 8058)."""

from collections.abc import Awaitable, Callable
from email.parser import BytesParser
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import parse_qs

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct, field

from services.api.http.acts import UNRECORDED
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from services.api.messages.unsubscribe_page import (
    COME_BACK,
    FIELD,
    UNSUBSCRIBE,
    away_page,
    subscription_page,
    unknown_page,
)
from shared.domain.accounts.apps import App
from shared.domain.errors import Invalid, NotFound, Unavailable
from shared.domain.messages.suppressions import SubscriptionState
from shared.flow.messages.unsubscribing import PATH, UnsubscribeFlow

LINK = PATH + "{token:str}"
BODY_BYTES = 4_096
KIND_CHARACTERS = 256  # a boundary has at most 70

_ANSWERS = {HTTPStatus.OK: None}
_PROBLEMS = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
_TOKEN = {"token": {"type": "string", "description": "The token of the recipient's link."}}
_FORM, _MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"

Ask = Callable[[str], Awaitable[tuple[App, SubscriptionState]]]


class UnsubscribeForm(Struct, frozen=True):
    """The form that the page's buttons and those of mail programs send."""

    wish: Literal["One-Click", "Come-Back"] = field(name=FIELD)


class UnsubscribeResource(Resource):
    """The routes of links. They ask for nobody's name, and set no cookie."""

    def __init__(self, flow: UnsubscribeFlow) -> None:
        self._flow = flow

    @Route(
        "GET", LINK, summary="Show a recipient whether they get messages of a list. Changes nothing.",
        who=EVERYBODY, answers=_ANSWERS, problems=_PROBLEMS, segments=_TOKEN,
        any_query=True,  # trackers add parameters such as utm_source to links
    )  # fmt: skip
    async def show_subscription(self, request: Request[Any, Any, Any], token: FromPath[str]) -> Response[str]:
        return await _answer(request, self._flow.look, token)

    @Route(
        "POST", LINK,
        summary="Unsubscribe a recipient (`List-Unsubscribe=One-Click`), or take that back (`Come-Back`).",
        act=UNRECORDED, who=EVERYBODY, body=UnsubscribeForm, body_media=(_FORM, _MULTIPART),
        max_body_bytes=BODY_BYTES, answers=_ANSWERS, problems=_PROBLEMS, segments=_TOKEN, any_query=True,
    )  # fmt: skip
    async def change_subscription(self, request: Request[Any, Any, Any], token: FromPath[str]) -> Response[str]:
        wish = _read_wish(request.headers.get("content-type", ""), await request.body())
        if wish == UNSUBSCRIBE:
            return await _answer(request, self._flow.unsubscribe, token)
        if wish == COME_BACK:
            return await _answer(request, self._flow.come_back, token)
        raise Invalid(f"a form with {FIELD}={UNSUBSCRIBE} is needed", field=FIELD)


async def _answer(request: Request[Any, Any, Any], ask: Ask, token: str) -> Response[str]:
    """The page; a person reads on a page what a program gets as a problem document."""
    try:
        app, state = await ask(token)
    except (NotFound, Unavailable) as error:
        if "text/html" not in request.headers.get("accept", ""):
            raise
        return unknown_page() if isinstance(error, NotFound) else away_page()
    return subscription_page(app.name, state)


def _read_wish(kind: str, content: bytes) -> str:
    """The value of the form's field, for both kinds of form; `""` without one."""
    if kind.partition(";")[0].strip().lower() == _MULTIPART:
        return _read_multipart(kind, content)
    return parse_qs(content.decode("utf-8", "replace")).get(FIELD, [""])[0].strip()


def _read_multipart(kind: str, content: bytes) -> str:
    if len(kind) > KIND_CHARACTERS:
        return ""
    head = f"Content-Type: {kind}\r\n\r\n".encode("latin-1", "replace")
    for part in BytesParser().parsebytes(head + content).walk():
        if part.get_param("name", header="content-disposition") == FIELD:
            value = part.get_payload(decode=True)
            return value.decode("utf-8", "replace").strip() if isinstance(value, bytes) else ""
    return ""
