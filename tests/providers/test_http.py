"""The kind `http`: what an account must be made of, what is sent, and what each status means."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
import uvloop
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from shared.core.errors import Invalid
from shared.drivers.http.client import HttpOutgoing
from shared.messages.rules.answers import (
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.providers import Provider, ProviderRules
from shared.providers.http import HttpKind
from tests.drivers.http.receiver import PRIVATE, Receiver, calling, receiving
from tests.providers.fakes import FakeProcess

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ALLOWED = ("127.0.0.1/32",)
KIND = HttpKind(ProviderRules(allowed_networks=ALLOWED))


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as started:
        yield started


@pytest.fixture
async def outgoing() -> AsyncIterator[HttpOutgoing]:
    async with calling() as opened:
        yield opened


def provider_at(url: str, outgoing: HttpOutgoing, **fields: Any) -> Provider:
    return KIND.open({"url": url, **fields}, {"signingSecret": WHSEC}, outgoing)


async def send(provider: Provider, **content: Any) -> Answer:
    return await provider.send(content, "ana@example.com", "m1~2", lambda: True)


async def test_the_body_is_the_content_and_signed(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    assert isinstance(await send(provider_at(receiver.url, outgoing), text="Grüße ☃"), CallAccepted)
    (got,) = receiver.received
    assert Webhook(WHSEC).verify(got.body, dict(got.headers)) == {"text": "Grüße ☃"}
    assert (got.header("webhook-id"), got.header("carillon-message")) == (["m1"], ["m1~2"])
    assert got.header("content-type") == ["application/json"]
    assert got.header("idempotency-key") == []


async def test_headers_of_the_account_are_sent(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    fields = {"headers": {"X-Team": "a", "content-type": "application/vnd.x+json"}, "idempotencyHeader": "X-Once"}
    secret = {"signingSecret": WHSEC, "authorization": "Basic YTpi"}
    await send(KIND.open({"url": receiver.url, **fields}, secret, outgoing))
    (got,) = receiver.received
    assert (got.header("x-team"), got.header("x-once"), got.header("authorization")) == (["a"], ["m1"], ["Basic YTpi"])
    assert got.header("content-type") == ["application/vnd.x+json"]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, CallAccepted()),
        (202, CallAccepted()),
        (204, CallAccepted()),
        (302, CallRefused(Reason.REFUSED, "HTTP 302")),
        (303, CallUnanswered("HTTP 303")),
        (400, CallRefused(Reason.REFUSED, "HTTP 400")),
        (401, LoginRefused("HTTP 401")),
        (403, CallRefused(Reason.REFUSED, "HTTP 403")),  # of this recipient, perhaps
        (404, CallRefused(Reason.REFUSED, "HTTP 404", "url")),
        (408, CallUnanswered("HTTP 408")),
        (410, CallRefused(Reason.REFUSED, "HTTP 410")),
        (422, CallRefused(Reason.REFUSED, "HTTP 422")),
        (429, NotNow("HTTP 429", too_fast=True)),
        (500, CallUnanswered("HTTP 500")),
        (501, CallUnanswered("HTTP 501")),
        (502, CallUnanswered("HTTP 502")),
        (503, NotNow("HTTP 503")),
        (504, CallUnanswered("HTTP 504")),
        (599, CallUnanswered("HTTP 599")),
    ],
)
async def test_what_a_status_means(outgoing: HttpOutgoing, receiver: Receiver, status: int, expected: Answer) -> None:
    receiver.answer = lambda: web.Response(status=status, body=b"")
    assert await send(provider_at(receiver.url, outgoing)) == expected


@pytest.mark.parametrize("status", [429, 503])
async def test_how_long_to_wait_is_told(outgoing: HttpOutgoing, receiver: Receiver, status: int) -> None:
    receiver.answer = lambda: web.Response(status=status, headers={"Retry-After": "90"})
    answer = await send(provider_at(receiver.url, outgoing))
    assert isinstance(answer, NotNow) and answer.retry_after == timedelta(seconds=90)
    assert answer.too_fast, "all calls wait for so long"


@pytest.mark.parametrize(
    ("body", "provider_id"),
    [
        ('{"id": "a"}', "a"),
        ('{"messageId": "b"}', "b"),
        ('{"id": "", "messageId": 7}', "7"),
        ('{"id": "x", "padding": "%s"}' % ("y" * 16_000), "x"),
        ('{"id": "%s"}' % ("z" * 300), "z" * 255),
        ('{"id": true}', ""),
        ('{"id": {"a": 1}}', ""),
        ('["id"]', ""),
        ("id", ""),
        ("", ""),
        ('{"id": "x", "padding": "%s"}' % ("y" * 20_000), ""),
    ],
)
async def test_the_id_that_an_answer_names(
    outgoing: HttpOutgoing, receiver: Receiver, body: str, provider_id: str
) -> None:
    receiver.answer = lambda: web.Response(status=202, text=body)
    assert await send(provider_at(receiver.url, outgoing)) == CallAccepted(provider_id)


async def test_a_guarded_target_is_not_called(outgoing: HttpOutgoing) -> None:
    async with receiving(PRIVATE) as inner:
        answer = await send(provider_at(inner.url, outgoing))
        assert inner.received == []
    assert isinstance(answer, CallRefused) and "a loopback address" in answer.detail


async def test_a_closed_client_is_not_now(receiver: Receiver) -> None:
    async with calling() as outgoing:
        provider = provider_at(receiver.url, outgoing)
        await outgoing.close()
        assert isinstance(await send(provider), NotNow)


@pytest.mark.parametrize("header", [None, "Idempotency-Key"])
def test_a_repeat_is_safe_where_the_server_knows_it(header: str | None) -> None:
    assert KIND.repeats_safely({"url": "https://a.example", "idempotencyHeader": header}) is (header is not None)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": None}, "url"),
        ({"url": "ftp://a.example"}, "url"),
        ({"url": "https://user@a.example"}, "url"),
        ({"url": "http://169.254.169.254/"}, "url"),
        ({"headers": {"Authorization": "hush-hush"}}, "headers.authorization"),
        ({"headers": {"X": 1}}, "headers"),
        ({"headers": {"webhook-id": "hush"}}, "headers.webhook-id"),
        ({"headers": {"X-Forwarded-For": "hush"}}, "headers.X-Forwarded-For"),
        ({"headers": {"Content-Length": "1"}}, "headers.Content-Length"),
        ({"idempotencyHeader": "Webhook-Id"}, "idempotencyHeader.Webhook-Id"),
        ({"idempotencyHeader": "two words"}, "idempotencyHeader.two words"),
        ({"idempotencyHeader": "x-a", "headers": {"X-A": "1"}}, "idempotencyHeader"),
        ({"idempotencyHeader": "Content-Type"}, "idempotencyHeader"),
        ({"rate": 7}, "rate"),
    ],
)
def test_an_account_that_cannot_be(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check({"url": "https://a.example/hook"} | changes, {"signingSecret": WHSEC})
    assert caught.value.field == field
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("secret", "field"),
    [
        ({}, "secret.signingSecret"),
        ({"signingSecret": "hush"}, "secret.signingSecret"),
        ({"signingSecret": WHSEC, "authorization": "hush\r\nX: y"}, "secret.authorization"),
        ({"signingSecret": WHSEC, "authorization": "hüsh"}, "secret.authorization"),
        ({"signingSecret": WHSEC, "hush": "x"}, "secret.hush"),
        ({"signingSecret": 7}, "secret.signingSecret"),
    ],
)
def test_a_secret_that_cannot_be(secret: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check({"url": "https://a.example/hook"}, secret)
    assert caught.value.field == field
    assert "hush\r" not in str(caught.value) and caught.value.value is None


def test_an_account_that_can_be() -> None:
    fields = {"url": "http://127.0.0.1:8080/x", "headers": {"X-Team": "a"}, "idempotencyHeader": "Idempotency-Key"}
    KIND.check(fields, {"signingSecret": WHSEC, "authorization": "Bearer x"})


def test_on_the_loop_of_services_connections_are_kept_too(started: Mapping[str, FakeProcess]) -> None:
    """uvloop reads an answer before it gives the writer's task its turn."""

    async def post_many() -> int:
        fake = started["http_fake"]
        await fake.answer()
        await fake.forget()
        async with calling() as opened:
            provider = provider_at(fake.url, opened)
            for _ in range(300):
                assert isinstance(await send(provider), CallAccepted)
            return (await fake.tell()).counts.connections

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(post_many()) == 1
