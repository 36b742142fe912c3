"""The page behind a recipient's link: plain HTML, which loads nothing, runs nothing and tells nobody of itself.

Texts of others are escaped in it. The policy allows this one style and forms to where the page came from.
"""

import base64
import hashlib
from html import escape
from http import HTTPStatus

from litestar import Response

from services.api.http.errors import RETRY_AFTER_SECONDS
from shared.domain.messages.suppressions import SubscriptionState
from shared.domain.messages.unsubscribing import EVERYTHING, ONE_CLICK

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
        barred = "None reach you at present, for another reason. Whoever sends them can tell you more."
        return _page("Unsubscribe?", _text(f"This ends {messages}.", barred) + _form(UNSUBSCRIBE, "Unsubscribe"))
    return _page("Unsubscribe?", _text(f"This ends {messages}.") + _form(UNSUBSCRIBE, "Unsubscribe"))


def unknown_page() -> Response[str]:
    """There is no such link."""
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
