"""The kind `fcm`: what an account must be made of, what FCM is told, what its errors mean, and its access tokens."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

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
from shared.providers import Provider, ProviderRules, tokens
from shared.providers.fcm import FcmKind, FcmSecret
from tests.clocks import ManualClock
from tests.drivers.http.receiver import calling, scripted
from tests.providers import fcm_fake
from tests.providers.accounts import service_account
from tests.providers.fakes import FakeProcess
from tests.providers.keys import p256_pem, rsa_pem
from tests.providers.rules import Rule
from tests.waiting import until

TO = "dT3sTt0k3n:APA91bF"
RULES = ProviderRules(call_seconds=20.0, allowed_networks=("127.0.0.1/32",))
ACCEPTED = json.dumps({"name": f"projects/{fcm_fake.PROJECT}/messages/0:15"})
NOTICE = {"notification": {"title": "hi"}}


@pytest.fixture
async def fcm(fakes: Mapping[str, FakeProcess]) -> FakeProcess:
    fake = fakes["fcm_fake"]
    await fake.answer(always=Rule(200, ACCEPTED))
    return fake


@pytest.fixture
async def outgoing() -> AsyncIterator[HttpOutgoing]:
    async with calling(connections=0) as client:
        yield client


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(time.time_ns())


@pytest.fixture
async def provider(fcm: FakeProcess, outgoing: HttpOutgoing, clock: ManualClock) -> AsyncIterator[Provider]:
    opened = open_at(fcm, outgoing, clock)
    yield opened
    await opened.close()


def open_at(
    fcm: FakeProcess, outgoing: HttpOutgoing, clock: ManualClock, *, rules: ProviderRules = RULES, **changes: str
) -> Provider:
    kind = FcmKind(rules, clock)
    secret = {"serviceAccount": json.dumps(json.loads(service_account(fcm.url)) | changes)}
    kind.check({"apiUrl": fcm.url}, secret)
    return kind.open({"apiUrl": fcm.url}, secret, outgoing)


async def send(provider: Provider, to: str = TO, content: dict[str, Any] = NOTICE) -> Answer:
    return await provider.send(content, to, "m.1~2", lambda: True)


async def told(fcm: FakeProcess) -> list[dict[str, Any]]:
    return [json.loads(arrived.body)["message"] for arrived in (await fcm.tell()).arrived]


async def granted(fcm: FakeProcess) -> list[str]:
    """The access tokens of the messages that arrived, in their order."""
    return [arrived.headers["authorization"].removeprefix("Bearer ") for arrived in (await fcm.tell()).arrived]


async def test_its_id_is_the_pushs(provider: Provider) -> None:
    assert await send(provider) == CallAccepted("0:15")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            NOTICE,
            NOTICE | {"android": {"notification": {"tag": "m.1"}}, "apns": {"headers": {"apns-collapse-id": "m.1"}}},
        ),
        (
            {"android": {"priority": "HIGH", "notification": {"title": "hi"}}},
            {
                "android": {"priority": "HIGH", "notification": {"tag": "m.1", "title": "hi"}},
                "apns": {"headers": {"apns-collapse-id": "m.1"}},
            },
        ),
        (
            NOTICE
            | {
                "android": {"notification": {"tag": "news"}},
                "apns": {"payload": {"x": 1}, "headers": {"apns-collapse-id": "news", "apns-priority": "5"}},
            },
            NOTICE
            | {
                "android": {"notification": {"tag": "news"}},
                "apns": {"payload": {"x": 1}, "headers": {"apns-collapse-id": "news", "apns-priority": "5"}},
            },
        ),
        ({"data": {"a": "1"}, "android": {"ttl": "60s"}}, {"data": {"a": "1"}, "android": {"ttl": "60s"}}),
    ],
)
async def test_a_notification_is_named_by_the_message(
    fcm: FakeProcess, provider: Provider, content: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert isinstance(await send(provider, content=content), CallAccepted)
    assert await told(fcm) == [expected | {"token": TO}]


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        ("gone-1", CallRefused(Reason.UNREGISTERED, "UNREGISTERED: Requested entity was not found.")),
        (
            "bad-1",
            CallRefused(
                Reason.MALFORMED,
                "INVALID_ARGUMENT: The registration token is not a valid FCM registration token",
            ),
        ),
        ("other-1", CallRefused(Reason.REFUSED, "SENDER_ID_MISMATCH: SenderId mismatch")),
    ],
)
async def test_what_fcm_does_not_take(provider: Provider, to: str, expected: Answer) -> None:
    assert await send(provider, to) == expected


async def test_data_that_are_no_texts_are_the_messages_fault(provider: Provider) -> None:
    answer = await send(provider, content={"data": {"a": 1}})
    assert answer == CallRefused(Reason.REFUSED, "INVALID_ARGUMENT: Invalid value (TYPE_STRING)")


def quota_passed(subject: str, description: str) -> Rule:
    """A limit that FCM tells of as all of Google's services do."""
    details = [
        {"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": "QUOTA_EXCEEDED"},
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure",
         "violations": [{"subject": subject, "description": description}]},
    ]  # fmt: skip
    fault = {"code": 429, "message": "limit exceeded", "status": "RESOURCE_EXHAUSTED", "details": details}
    return Rule(429, json.dumps({"error": fault}))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (fcm_fake.error(404, "NOT_FOUND", "no", "UNREGISTERED"), CallRefused(Reason.UNREGISTERED)),
        (fcm_fake.error(404, "NOT_FOUND", "no"), CallRefused()),  # the project, perhaps
        (fcm_fake.error(401, "UNAUTHENTICATED", "no", "THIRD_PARTY_AUTH_ERROR"), CallRefused()),
        (fcm_fake.error(400, "INVALID_ARGUMENT", "no", "", ("message.token",)), CallRefused(Reason.MALFORMED)),
        (fcm_fake.error(400, "INVALID_ARGUMENT", "no", "", ("message.data",)), CallRefused()),
        (fcm_fake.error(403, "PERMISSION_DENIED", "no"), LoginRefused()),
        (fcm_fake.error(429, "RESOURCE_EXHAUSTED", "no"), NotNow(too_fast=True)),
        (fcm_fake.error(429, "RESOURCE_EXHAUSTED", "Device message rate exceeded", "QUOTA_EXCEEDED"), NotNow()),
        (quota_passed("device:a1", "no"), NotNow()),
        (quota_passed("project:7", "no"), NotNow(too_fast=True)),
        (fcm_fake.error(500, "INTERNAL", "no"), CallUnanswered()),
        (fcm_fake.error(503, "UNAVAILABLE", "no"), NotNow()),
        (
            msgspec.structs.replace(fcm_fake.error(503, "UNAVAILABLE", "no"), headers={"Retry-After": "9"}),
            NotNow(too_fast=True),
        ),
        (fcm_fake.error(504, "DEADLINE_EXCEEDED", "no"), CallUnanswered()),
        (Rule(404, "<title>Error 404 (Not Found)!!1</title>"), CallRefused()),
        (Rule(502, "<title>Error 502</title>"), CallUnanswered()),
        (Rule(400, '{"error": "no object"}'), CallRefused()),
    ],
)
async def test_what_an_error_means(fcm: FakeProcess, provider: Provider, rule: Rule, expected: Any) -> None:
    await fcm.answer(always=rule)
    answer = await send(provider)
    assert type(answer) is type(expected)
    assert getattr(answer, "reason", None) == getattr(expected, "reason", None)
    assert getattr(answer, "too_fast", None) == getattr(expected, "too_fast", None)
    assert not isinstance(answer, CallAccepted) and answer.detail


async def test_a_project_that_is_another_is_refused(
    fcm: FakeProcess, outgoing: HttpOutgoing, clock: ManualClock
) -> None:
    """A page of Google's says nothing about the recipient."""
    provider = open_at(fcm, outgoing, clock, project_id="project/../8")
    answer = await send(provider)
    assert isinstance(answer, CallRefused) and answer.reason is Reason.REFUSED
    assert (await fcm.tell()).arrived[0].path == "/v1/projects/project%2F..%2F8/messages:send"


# Access tokens.


async def test_a_token_is_granted_once_for_all(fcm: FakeProcess, provider: Provider) -> None:
    answers = await asyncio.gather(*(send(provider) for _ in range(20)))
    assert all(isinstance(answer, CallAccepted) for answer in answers)
    await send(provider)
    assert len(set(await granted(fcm))) == 1


async def test_a_token_is_renewed_before_it_ends_and_used_meanwhile(
    fcm: FakeProcess, provider: Provider, clock: ManualClock
) -> None:
    await fcm.answer(always=Rule(200, ACCEPTED, headers={"Token-Seconds": "100"}))
    await send(provider)
    clock.advance(79)
    await send(provider)
    clock.advance(2)
    await send(provider)  # asks for the next one, and does not wait

    async def is_renewed() -> bool:
        assert isinstance(await send(provider), CallAccepted)
        return len(set(await granted(fcm))) == 2

    await until(is_renewed, "a message with the next token")
    first, *rest = await granted(fcm)
    assert rest[:2] == [first, first]


async def test_a_token_at_its_end_is_used_no_more(fcm: FakeProcess, provider: Provider, clock: ManualClock) -> None:
    await fcm.answer(always=Rule(200, ACCEPTED, headers={"Token-Seconds": "100"}))
    await send(provider)
    clock.advance(96)
    assert isinstance(await send(provider), CallAccepted)
    assert len(set(await granted(fcm))) == 2


async def test_while_a_token_is_good_nothing_stops(fcm: FakeProcess, provider: Provider, clock: ManualClock) -> None:
    """Granting fails; it is tried again only now and then, and told when the old one ends."""
    await fcm.answer(always=Rule(200, ACCEPTED, headers={"Token-Seconds": "100"}))
    await send(provider)
    refusing = Rule(200, ACCEPTED, headers={"Token-Status": "500", "Token-Text": "oops"})
    await fcm.answer(always=refusing)
    clock.advance(85)

    async def is_asked_for() -> bool:
        assert isinstance(await send(provider), CallAccepted)
        return (await fcm.tell()).counts.others == 2

    await until(is_asked_for, "the second request for a token")
    for _ in range(5):
        assert isinstance(await send(provider), CallAccepted)
    assert (await fcm.tell()).counts.others == 2
    clock.advance(11)
    assert await send(provider) == NotNow("no access token: HTTP 500: oops")
    await fcm.answer(always=Rule(200, ACCEPTED))
    assert isinstance(await send(provider), CallAccepted)


async def test_a_token_that_ended_early_costs_a_message_no_more_than_time(fcm: FakeProcess, provider: Provider) -> None:
    await send(provider)
    await fcm.answer(fcm_fake.error(401, "UNAUTHENTICATED", "bearer {}"), always=Rule(200, ACCEPTED))
    assert await send(provider) == NotNow("HTTP 401: bearer {}")
    assert isinstance(await send(provider), CallAccepted)
    first, second, third = await granted(fcm)
    assert first == second != third


async def test_a_token_that_never_let_us_in_is_a_refused_login(fcm: FakeProcess, provider: Provider) -> None:
    await fcm.answer(always=fcm_fake.error(401, "UNAUTHENTICATED", "who are you?"))
    assert isinstance(await send(provider), LoginRefused)


@pytest.mark.parametrize(
    ("status", "text", "expected"),
    [
        (
            400,
            '{"error":"invalid_grant","error_description":"Invalid JWT Signature."}',
            LoginRefused("no access token: invalid_grant: Invalid JWT Signature."),
        ),
        (401, '{"error":"invalid_client"}', LoginRefused("no access token: invalid_client")),
        (403, "", LoginRefused("no access token: HTTP 403")),
        (429, "slower", NotNow("HTTP 429: slower", too_fast=True)),
        (503, "busy", NotNow("HTTP 503: busy")),
        (500, "oops", NotNow("no access token: HTTP 500: oops")),
        (200, "{}", NotNow("no access token was granted")),
        (200, '{"access_token":"a\\r\\nb","expires_in":60}', NotNow("no access token was granted")),
        (200, '{"access_token":"a","expires_in":0}', NotNow("no access token was granted")),
        (302, "", CallRefused(Reason.REFUSED, "HTTP 302")),
    ],
)
async def test_without_a_token_nothing_is_sent(
    fcm: FakeProcess, provider: Provider, status: int, text: str, expected: Answer
) -> None:
    await fcm.answer(always=Rule(200, ACCEPTED, headers={"Token-Status": str(status), "Token-Text": text}))
    assert await provider.send(NOTICE, TO, "m~1", pytest.fail) == expected
    assert (await fcm.tell()).arrived == []


async def test_a_key_that_google_does_not_know_is_refused(
    fcm: FakeProcess, outgoing: HttpOutgoing, clock: ManualClock
) -> None:
    provider = open_at(fcm, outgoing, clock, client_email="nobody@project-7.iam.gserviceaccount.com")
    answer = await send(provider)
    assert answer == LoginRefused("no access token: invalid_grant: Invalid grant: account not found")


async def test_who_grants_nothing_ends_the_call_in_time(outgoing: HttpOutgoing, clock: ManualClock) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with scripted(hang) as address:
        silent = FakeProcess(None, int(address.rpartition(":")[2]))
        provider = open_at(silent, outgoing, clock, rules=msgspec.structs.replace(RULES, call_seconds=0.3))
        began = time.monotonic()
        answer = await provider.send(NOTICE, TO, "m~1", pytest.fail)
        await provider.close()
    assert isinstance(answer, NotNow) and 0.3 <= time.monotonic() - began < 30.0


async def test_closing_ends_the_wait_for_a_token(outgoing: HttpOutgoing, clock: ManualClock) -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()

    async with scripted(hang) as address:
        provider = open_at(FakeProcess(None, int(address.rpartition(":")[2])), outgoing, clock)
        sending = asyncio.create_task(send(provider))
        await asked.wait()
        await provider.close()
        assert await sending == NotNow("no access token was granted")


async def test_no_detail_shows_a_token(fcm: FakeProcess, provider: Provider) -> None:
    await send(provider)
    (token,) = await granted(fcm)
    await fcm.answer(always=fcm_fake.error(400, "INVALID_ARGUMENT", f"{token} {TO} {rsa_pem()}"))
    answer = await send(provider)
    assert answer == CallRefused(Reason.REFUSED, "INVALID_ARGUMENT: … …bF …")


def test_no_representation_shows_a_secret() -> None:
    account = tokens.read_service_account(the_file()["serviceAccount"], "x")
    shown = (account, tokens.GrantedToken("s3cret"), tokens.AccessToken("s3cret", 0, 0), FcmSecret("s3cret"))
    assert not any(word in repr(each) for each in shown for word in ("s3cret", "PRIVATE", fcm_fake.CLIENT))


# Accounts and templates.


def the_file(**changes: Any) -> dict[str, str]:
    account = json.loads(service_account("https://oauth2.example.com")) | changes
    return {"serviceAccount": json.dumps({name: value for name, value in account.items() if value is not None})}


@pytest.mark.parametrize(
    ("fields", "secret", "field"),
    [
        ({"apiUrl": "http://10.0.0.1"}, the_file(), "apiUrl"),
        ({"project": "x"}, the_file(), "project"),
        ({}, {}, "secret.serviceAccount"),
        ({}, {"serviceAccount": "s3cret"}, "secret.serviceAccount"),
        ({}, {"serviceAccount": "[]"}, "secret.serviceAccount"),
        ({}, the_file(type="authorized_user"), "secret.serviceAccount"),
        ({}, the_file(client_email=None), "secret.serviceAccount"),
        ({}, the_file(project_id=""), "secret.serviceAccount"),
        ({}, the_file(private_key="s3cret"), "secret.serviceAccount"),
        ({}, the_file(private_key=p256_pem()), "secret.serviceAccount"),
        ({}, the_file(token_uri="http://169.254.169.254/token"), "secret.serviceAccount"),
        ({}, the_file(token_uri="s3cret"), "secret.serviceAccount"),
    ],
)
def test_an_account_that_cannot_be(fields: dict[str, Any], secret: dict[str, str], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        FcmKind(RULES).check(fields, secret)
    assert caught.value.field == field
    assert "s3cret" not in str(caught.value) + repr(caught.value.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_an_account_that_can_be() -> None:
    FcmKind(RULES).check({}, the_file())
    FcmKind(RULES).check({}, the_file(token_uri=None))
    assert tokens.read_service_account(the_file(token_uri=None)["serviceAccount"], "x").token_uri == tokens.TOKEN_URI


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "notification"),
        ({"fcm_options": {}}, "notification"),
        ({"notification": "hi"}, "notification"),
        ({"notification": {}, "topic": "news"}, "topic"),
        ({"notification": {}, "token": "x"}, "token"),
        ({"notification": {}, "to": "x"}, "to"),
        ({"data": {"a": 1}}, "data.a"),
        ({"data": {"from": "x"}}, "data.from"),
        ({"data": {"message_type": "x"}}, "data.message_type"),
        ({"data": {"google.c.a.e": "1"}}, "data.google.c.a.e"),
        ({"data": {"gcm.notification.title": "x"}}, "data.gcm.notification.title"),
        ({"data": []}, "data"),
        ({"android": {"data": {"from": "x"}}}, "android.data.from"),
        ({"android": {"data": {"n": 1}}}, "android.data.n"),
        ({"webpush": {"data": {"gcm.x": "1"}}}, "webpush.data.gcm.x"),
        ({"data": {"a": "1"}, "android": {"data": "a"}}, "android.data"),
    ],
)
def test_a_template_that_cannot_be(body: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        FcmKind(RULES).check_content(body)
    assert caught.value.field == field


def test_a_template_that_can_be() -> None:
    FcmKind(RULES).check_content({"notification": {"title": "{{name}}"}, "data": {"a": "1"}, "fcmOptions": {}})
    FcmKind(RULES).check_content({"android": {"priority": "high", "data": {"a": "1"}}, "webpush": {}})
