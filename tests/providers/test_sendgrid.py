"""The kind `sendgrid`: what an account and a template must be made of, and what is sent."""

from typing import Any

import msgspec
import pytest
from aiohttp import web

from shared.core.errors import Invalid
from shared.messages.rules.answers import CallAccepted, CallRefused, NotNow, Reason
from shared.providers import ProviderRules
from shared.providers.sendgrid import SendGridKind
from tests.drivers.http.receiver import Receiver, calling, receiving

KIND = SendGridKind(ProviderRules(allowed_networks=("127.0.0.1/32",)))
FIELDS = {"from": "news@example.com"}
SECRET = {"apiKey": "SG.key"}


async def send(receiver: Receiver, content: dict[str, Any], to: str = "ana@example.com") -> Any:
    async with calling() as outgoing:
        provider = KIND.open(FIELDS | {"apiUrl": receiver.url}, SECRET, outgoing)
        return await provider.send(content, to, "m~1", lambda: True)


async def test_a_mail_has_the_parts_that_it_is_given() -> None:
    async with receiving() as receiver:
        receiver.answer = lambda: web.Response(status=202, headers={"X-Message-Id": "sg-1"})
        content = {"subject": "a\r\nb", "html": "<b>", "unsubscribeUrl": "https://x.example/u/1"}
        answer = await send(receiver, content, "ana@bücher.example")
    assert answer == CallAccepted("sg-1")
    assert msgspec.json.decode(receiver.received[0].body) == {
        "personalizations": [
            {"to": [{"email": "ana@xn--bcher-kva.example"}], "custom_args": {"carillon_message": "m~1"}}
        ],
        "from": {"email": "news@example.com", "name": ""},
        "subject": "a??b",
        "content": [{"type": "text/html", "value": "<b>"}],
        "headers": {
            "List-Unsubscribe": "<https://x.example/u/1>",
            "List-Unsubscribe-Post": "List-Unsubscribe=One-Click",
            "X-Carillon-Message": "m~1",
        },
    }


async def test_what_no_server_can_be_told_is_not_called() -> None:
    async with receiving() as receiver:
        answer = await send(receiver, {}, "søren@example.com")
        assert receiver.received == []
    assert isinstance(answer, CallRefused) and answer.reason is Reason.MALFORMED


@pytest.mark.parametrize(
    ("path", "reason", "own"),
    [
        ("personalizations.0.to.0.email", Reason.MALFORMED, ""),
        ("personalizations.0.to", Reason.MALFORMED, ""),
        ("from.email", Reason.REFUSED, "from"),
        ("reply_to.email", Reason.REFUSED, "replyTo"),
        (None, Reason.REFUSED, ""),
    ],
)
async def test_only_an_error_of_the_recipient_is_the_addresss_fault(path: str | None, reason: Reason, own: str) -> None:
    async with receiving() as receiver:
        receiver.answer = lambda: web.json_response({"errors": [{"message": "no.", "field": path}]}, status=400)
        assert await send(receiver, {}) == CallRefused(reason, "HTTP 400: no", own)


async def test_patience_without_a_time_has_none() -> None:
    async with receiving() as receiver:
        receiver.answer = lambda: web.Response(status=429, headers={"X-RateLimit-Reset": "soon"})
        assert await send(receiver, {}) == NotNow("HTTP 429", too_fast=True)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"from": "nobody"}, "from"),
        ({"from": "søren@example.com"}, "from"),
        ({"fromName": "a\r\nBcc: b"}, "fromName"),
        ({"replyTo": "nobody"}, "replyTo"),
        ({"apiUrl": "http://10.0.0.1"}, "apiUrl"),
        ({"to": "x"}, "to"),
    ],
)
def test_an_account_that_cannot_be(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check(FIELDS | changes, SECRET)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"text": "x"}, "subject"),
        ({"subject": " ", "text": "x"}, "subject"),
        ({"subject": "a\nb", "text": "x"}, "subject"),
        ({"subject": "x"}, "text"),
        ({"subject": "x", "text": "x", "headers": {}}, "headers"),
        ({"subject": "x", "text": "x", "unsubscribeUrl": "https://x.example/u/1"}, "unsubscribeUrl"),
    ],
)
def test_a_template_that_cannot_be(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check_content(body)
    assert caught.value.field == field
