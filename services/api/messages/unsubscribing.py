"""`/u/{token}`: a recipient's own link. A recipient who opens it sees a page; a program that posts to it unsubscribes.

The page is plain HTML, which loads nothing, runs nothing and tells no other site where it was opened.
"""

import base64
import hashlib
from collections.abc import Awaitable, Callable
from email.parser import BytesParser
from html import escape
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import parse_qs

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct, field

from services.api.http.acts import UNRECORDED
from services.api.http.errors import RETRY_AFTER_SECONDS
from services.api.http.rights import EVERYBODY
from services.api.http.routes import Resource, Route
from shared.accounts.rules.apps import App
from shared.core.errors import Invalid, NotFound, Unavailable
from shared.messages.barring import PATH, UnsubscribeFlow
from shared.messages.rules.suppressions import EVERYTHING, ONE_CLICK, SubscriptionState

FIELD, UNSUBSCRIBE = ONE_CLICK
COME_BACK = "Come-Back"
STYLE = """
:root { color-scheme: light dark; }
body { font: 1.125rem/1.5 system-ui, sans-serif; margin: 0; padding: 1.5rem; }
main { max-width: 34rem; margin: 12vh auto 0; }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; }
button { font: inherit; padding: .6rem 1.2rem; border: 2px solid; border-radius: .4rem; background: none;
  color: inherit; cursor: pointer; }
button:hover { text-decoration: underline; }
button:focus-visible { outline: 3px solid; outline-offset: 3px; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'",
    # Without any referrer at all, a browser would not say either that the form comes from this page.
    "referrer-policy": "same-origin",
    "x-robots-tag": "noindex, nofollow",
    "x-frame-options": "DENY",
}


def subscription_page(app_name: str, subscription: SubscriptionState) -> Response[str]:
    """The page that tells a recipient whether they are subscribed, and lets them change it."""
    messages = _messages(app_name, subscription.list)
    if subscription.unsubscribed:
        said = f"You get no more {messages}."
        return _page("You have unsubscribed", _text(said) + _form(COME_BACK, "Subscribe again"))
    if subscription.from_everything:
        everything = _messages(app_name, EVERYTHING)
        said = f"You have unsubscribed from all messages, so you get no more {everything}."
        return _page("You have unsubscribed", _text(said, "The link by which you did so leads back."))
    if subscription.barred:
        barred = "None reach you at present, for another reason. The sender can tell you more."
        return _page("Unsubscribe?", _text(f"This ends {messages}.", barred) + _form(UNSUBSCRIBE, "Unsubscribe"))
    return _page("Unsubscribe?", _text(f"This ends {messages}.") + _form(UNSUBSCRIBE, "Unsubscribe"))


def unknown_page() -> Response[str]:
    said = _text("This link is not complete, or not in use any more.", "Nothing was changed.")
    return _page("This link does not work", said, HTTPStatus.NOT_FOUND)


def away_page() -> Response[str]:
    """We cannot say or do anything now."""
    said = _text("We cannot do this at the moment. Please open the link again in a minute.")
    return _page("Please try again", said, HTTPStatus.SERVICE_UNAVAILABLE, {"retry-after": str(RETRY_AFTER_SECONDS)})


def _messages(app_name: str, list_name: str) -> str:
    return f"messages of {list_name} from {app_name}" if list_name else f"messages from {app_name}"


def _text(*paragraphs: str) -> str:
    return "".join(f"<p>{escape(paragraph)}</p>\n" for paragraph in paragraphs)


def _form(value: str, label: str) -> str:
    hidden = f'<input type="hidden" name="{FIELD}" value="{value}">'
    return f'<form method="post">{hidden}<button type="submit">{label}</button></form>\n'


def _page(
    title: str, content: str, status: HTTPStatus = HTTPStatus.OK, headers: dict[str, str] | None = None
) -> Response[str]:
    html = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex, nofollow">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{content}</main>
</body>
</html>
"""
    return Response(html, status_code=status, media_type="text/html", headers=HEADERS | (headers or {}))


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
    """The routes of links. They need no sign-in, and set no cookie."""

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
