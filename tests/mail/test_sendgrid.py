"""SendGrid alone: what its API is told, and what its answers mean."""

import socket

import pytest
from aiohttp import web

from shared.domain.errors import Invalid, Unauthorized, Unavailable
from shared.mail.sendgrid import SendGridMail
from tests.mail.sinks import KEY, PATIENCE, SENDER, letter, posting, sendgrid
from tests.outgoing.receiver import INTERNET, PRIVATE, calling


async def test_the_call() -> None:
    async with sendgrid() as sink:
        await sink.mail.send(letter())
        [call] = sink.receiver.received
    assert (call.method, call.path) == ("POST", "/v3/mail/send")
    assert call.header("Authorization") == [f"Bearer {KEY}"]
    assert call.header("Content-Type") == ["application/json"]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_that_is_not_accepted(status: int) -> None:
    async with sendgrid() as sink:
        sink.fail(status)
        with pytest.raises(Unauthorized, match=str(status)) as caught:
            await sink.mail.send(letter())
    assert KEY not in str(caught.value)


async def test_any_success_will_do() -> None:
    async with sendgrid() as sink:
        sink.receiver.answer = lambda: web.Response(status=200)
        await sink.mail.send(letter())
        assert len(sink.mailed) == 1


async def test_nobody_there() -> None:
    with socket.socket() as unused:
        unused.bind((INTERNET, 0))
        url = "sendgrid://apikey:{}@{}:{}?tls=never".format(KEY, *unused.getsockname())
        async with calling() as outgoing:
            mail = SendGridMail.open(url, sender=SENDER, post=posting(outgoing), timeout_seconds=PATIENCE)
            with pytest.raises(Unavailable, match="cannot be connected to"):
                await mail.send(letter())


async def test_a_place_that_must_not_be_called() -> None:
    async with calling() as outgoing:
        url = f"sendgrid://apikey:{KEY}@{PRIVATE}"
        mail = SendGridMail.open(url, sender=SENDER, post=posting(outgoing), timeout_seconds=PATIENCE)
        with pytest.raises(Invalid):
            await mail.send(letter())


@pytest.mark.parametrize(
    ("place", "called"),
    [
        ("api.sendgrid.com", "https://api.sendgrid.com/v3/mail/send"),
        ("api.eu.sendgrid.com:8443/", "https://api.eu.sendgrid.com:8443/v3/mail/send"),
        ("[::1]:80?tls=never", "http://[::1]:80/v3/mail/send"),
        ("api.sendgrid.com?tls=required", "https://api.sendgrid.com/v3/mail/send"),
    ],
)
async def test_where_the_api_is(place: str, called: str) -> None:
    async with calling() as outgoing:
        mail = SendGridMail.open(
            f"sendgrid://apikey:{KEY}@{place}", sender=SENDER, post=posting(outgoing), timeout_seconds=PATIENCE
        )
    assert mail._url == called


@pytest.mark.parametrize(
    "url",
    [
        "sendgrid://api.sendgrid.com",
        f"sendgrid://{KEY}@api.sendgrid.com",
        f"smtp://apikey:{KEY}@h",
        "sendgrid://a:b%0Ac@h",
    ],
)
async def test_a_url_without_a_key(url: str) -> None:
    async with calling() as outgoing:
        with pytest.raises(Invalid) as caught:
            SendGridMail.open(url, sender=SENDER, post=posting(outgoing), timeout_seconds=PATIENCE)
    assert caught.value.field == "mail.url"
    assert KEY not in str(caught.value)
