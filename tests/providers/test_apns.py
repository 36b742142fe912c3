"""The kind `apns`: what an account must be made of, what a push says besides its payload, and what APNs' words mean."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing
from shared.messages.rules.answers import (
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.providers import Provider, ProviderRules, collapse_id
from shared.providers.apns import ApnsFields, ApnsKind
from shared.providers.base import read_fields
from tests.clocks import ManualClock
from tests.providers import apns_fake
from tests.providers.fakes import FakeProcess
from tests.providers.keys import p256_pem, rsa_pem
from tests.providers.rules import Arrived, Rule

DEVICE = "0123456789abcdef" * 4
FIELDS = {"teamId": apns_fake.TEAM, "keyId": apns_fake.KEY, "topic": apns_fake.TOPIC}
SECRET = {"key": p256_pem()}
PAYLOAD = {"aps": {"alert": "hi"}}
RULES = ProviderRules(call_seconds=20.0, allowed_networks=("127.0.0.1/32",))
KIND = ApnsKind(RULES)
NO_HTTP: Outgoing = None  # type: ignore[assignment]
OPENED: list[Provider] = []


@pytest.fixture(autouse=True)
async def _close_all() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().close()


@pytest.fixture
async def apns(fakes: Mapping[str, FakeProcess]) -> FakeProcess:
    return fakes["apns_fake"]


def provider_at(apns: FakeProcess, changes: Mapping[str, Any] = {}, *, kind: ApnsKind = KIND) -> Provider:
    fields = {**FIELDS, "apiUrl": apns.url, **changes}
    kind.check(fields, SECRET)
    provider = kind.open(fields, SECRET, NO_HTTP)
    OPENED.append(provider)
    return provider


async def send(provider: Provider, to: str = DEVICE, key: str = "m.1~2", **content: Any) -> Answer:
    return await provider.send(content or PAYLOAD, to, key, lambda: True)


async def only(apns: FakeProcess) -> Arrived:
    (arrived,) = (await apns.tell()).arrived
    return arrived


async def test_a_push_bears_the_messages_id_and_the_accounts_wishes(apns: FakeProcess) -> None:
    clock = ManualClock()
    provider = provider_at(apns, {"priority": 5, "expirationSeconds": 60}, kind=ApnsKind(RULES, clock))
    # The fake's clock is the real one, by which this account's token is too old or too young.
    await apns.answer(always=Rule(201))
    await send(provider)
    headers = (await only(apns)).headers
    assert headers["apns-collapse-id"] == "m.1" and headers["apns-topic"] == apns_fake.TOPIC
    assert headers["apns-push-type"] == "alert" and headers["apns-priority"] == "5"
    assert headers["apns-expiration"] == str(1_800_000_000 + 60)


async def test_its_id_is_the_pushs(apns: FakeProcess) -> None:
    answer = await send(provider_at(apns))
    assert isinstance(answer, CallAccepted) and len(answer.provider_id) == 36
    assert not {"apns-priority", "apns-expiration", "apns-id"} & (await only(apns)).headers.keys()


async def test_now_or_never(apns: FakeProcess) -> None:
    assert isinstance(await send(provider_at(apns, {"expirationSeconds": 0})), CallAccepted)
    assert (await only(apns)).headers["apns-expiration"] == "0"


@pytest.mark.parametrize(
    ("aps", "push_type", "priority"),
    [
        ({"content-available": 1}, "background", "5"),
        ({"content-available": 1, "badge": 3}, "alert", None),
        ({"content-available": 0}, "alert", None),
        ({"alert": "hi", "mutable-content": 1}, "alert", None),
    ],
)
async def test_what_shows_nothing_is_of_the_background(
    apns: FakeProcess, aps: dict[str, Any], push_type: str, priority: str | None
) -> None:
    for changes in ({}, {"priority": 10}):
        await apns.forget()
        assert isinstance(await send(provider_at(apns, changes), aps=aps), CallAccepted)
        headers = (await only(apns)).headers
        assert headers["apns-push-type"] == push_type
        assert headers.get("apns-priority") == (priority or ("10" if changes else None))


async def test_an_account_may_say_what_its_pushes_are(apns: FakeProcess) -> None:
    await send(provider_at(apns, {"pushType": "liveactivity"}))
    assert (await only(apns)).headers["apns-push-type"] == "liveactivity"


def test_an_id_that_is_too_long_becomes_a_hash() -> None:
    assert collapse_id("m" * 64) == "m" * 64
    assert len(collapse_id("ä" * 33)) == 64 and collapse_id("m" * 65) != collapse_id("n" * 65)


async def test_what_no_device_has_is_not_told(apns: FakeProcess) -> None:
    provider = provider_at(apns)
    for to in ("", "xyz", "0123 4567 89ab", f"{DEVICE}/../../x", "é" * 64):
        answer = await send(provider, to)
        assert isinstance(answer, CallRefused) and answer.reason is Reason.MALFORMED
    assert (await apns.tell()).counts.connections == 0


@pytest.mark.parametrize(("push_type", "most"), [(None, 4_096), ("voip", 5_120)])
async def test_a_payload_has_so_many_bytes(apns: FakeProcess, push_type: str | None, most: int) -> None:
    provider = provider_at(apns, {"pushType": push_type} if push_type else {})
    room = most - len(json.dumps({"aps": {"alert": ""}}, separators=(",", ":")))
    assert isinstance(await send(provider, aps={"alert": "x" * room}), CallAccepted)
    answer = await send(provider, aps={"alert": "x" * (room + 1)})
    assert answer == CallRefused(Reason.REFUSED, f"the payload has {most + 1:,} bytes; at most {most:,} are allowed")
    assert len((await apns.tell()).arrived) == 1


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadDeviceToken", CallRefused()),  # as at the wrong environment
        (400, "DeviceTokenNotForTopic", CallRefused()),
        (400, "TopicDisallowed", CallRefused(field="topic")),
        (400, "IdleTimeout", NotNow()),
        (403, "ExpiredProviderToken", LoginRefused()),
        (403, "InvalidProviderToken", LoginRefused()),
        (403, "BadCertificate", LoginRefused()),
        (403, "Forbidden", CallRefused()),
        (404, "BadPath", CallRefused()),
        (410, "Unregistered", CallRefused(Reason.UNREGISTERED)),
        (410, "ExpiredToken", CallRefused(Reason.UNREGISTERED)),
        (410, "", CallRefused(Reason.UNREGISTERED)),
        (413, "PayloadTooLarge", CallRefused()),
        (429, "TooManyRequests", NotNow()),  # of one device
        (429, "TooManyProviderTokenUpdates", NotNow(too_fast=True)),
        (429, "", NotNow(too_fast=True)),
        (500, "InternalServerError", CallUnanswered()),
        (502, "", CallUnanswered()),
        (503, "ServiceUnavailable", NotNow()),
        (503, "Shutdown", NotNow()),
        (503, "", NotNow()),
    ],
)
async def test_what_a_reason_means(apns: FakeProcess, status: int, reason: str, expected: Any) -> None:
    await apns.answer(always=Rule(status, json.dumps({"reason": reason}) if reason else ""))
    answer = await send(provider_at(apns))
    assert type(answer) is type(expected)
    assert answer == type(expected)(**{**_parts(expected), "detail": f"HTTP {status}: {reason}".rstrip(": ")})


def _parts(answer: Answer) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__struct_fields__}


@pytest.mark.parametrize(
    ("to", "changes", "reason"),
    [
        ("00" * 31, {}, Reason.REFUSED),  # BadDeviceToken
        (apns_fake.GONE, {}, Reason.UNREGISTERED),
        (DEVICE, {"topic": "com.example.other"}, Reason.REFUSED),
    ],
)
async def test_what_apns_does_not_take(apns: FakeProcess, to: str, changes: dict[str, str], reason: Reason) -> None:
    answer = await send(provider_at(apns, changes), to)
    assert isinstance(answer, CallRefused) and answer.reason is reason


async def test_who_is_another_team_is_not_let_in(apns: FakeProcess) -> None:
    answer = await send(provider_at(apns, {"teamId": "NOBODY1234"}))
    assert answer == LoginRefused("HTTP 403: InvalidProviderToken")


async def test_a_device_has_a_limit(apns: FakeProcess) -> None:
    await apns.answer(always=Rule(200, headers={"Device-Limit": "2"}))
    provider = provider_at(apns)
    answers = [await send(provider, key=f"{number}~1") for number in range(3)]
    assert answers[2] == NotNow("HTTP 429: TooManyRequests")
    assert isinstance(answers[1], CallAccepted)


async def test_all_processes_sign_one_token_for_40_minutes(apns: FakeProcess) -> None:
    await apns.answer(always=Rule(201))
    clock = ManualClock()  # at the beginning of a slice
    providers = [provider_at(apns, kind=ApnsKind(RULES, clock)) for _ in range(2)]
    for seconds in (0, 2_399, 1, 2_399):
        clock.advance(seconds)
        for provider in providers:
            await send(provider)
    tokens = [arrived.headers["authorization"] for arrived in (await apns.tell()).arrived]
    assert tokens[0] == tokens[1] == tokens[2] == tokens[3] != tokens[4]
    assert len(set(tokens[4:])) == 1
    claims = json.loads(base64.urlsafe_b64decode(tokens[4].split(".")[1] + "=="))
    assert claims == {"iss": apns_fake.TEAM, "iat": 1_800_000_000 + 2_400}


async def test_no_detail_shows_our_token(apns: FakeProcess) -> None:
    provider = provider_at(apns)
    await send(provider)
    token = (await only(apns)).headers["authorization"].removeprefix("bearer ")
    await apns.answer(always=Rule(403, json.dumps({"reason": f"Bad {token} and {token.rpartition('.')[2]} {DEVICE}"})))
    answer = await send(provider)
    assert answer == LoginRefused("HTTP 403: Bad … and … …ef")


async def test_a_name_that_leads_inside_is_not_connected_to(apns: FakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(*_: Any, **__: Any) -> list[Any]:
        return [(2, 1, 6, "", ("127.0.0.2", apns.port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    answer = await send(provider_at(apns, {"apiUrl": f"http://push.example:{apns.port}"}))
    assert answer == CallRefused(
        Reason.OTHER, "push.example leads to a loopback address; allowed_networks can allow it"
    )
    assert (await apns.tell()).counts.connections == 0


def test_where_an_account_sends() -> None:
    assert read_fields(FIELDS, ApnsFields).url == "https://api.push.apple.com"
    assert read_fields(FIELDS | {"sandbox": True}, ApnsFields).url == "https://api.sandbox.push.apple.com"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"teamId": "short"}, "teamId"),
        ({"keyId": "key1234567"}, "keyId"),
        ({"topic": "a b"}, "topic"),
        ({"topic": "com.example\r\nx: y"}, "topic"),
        ({"sandbox": "yes"}, "sandbox"),
        ({"pushType": "letter"}, "pushType"),
        ({"priority": 7}, "priority"),
        ({"priority": 10, "pushType": "background"}, "priority"),
        ({"expirationSeconds": -1}, "expirationSeconds"),
        ({"apiUrl": "http://10.0.0.1"}, "apiUrl"),
        ({"certificate": "x"}, "certificate"),
    ],
)
def test_an_account_that_cannot_be(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check(FIELDS | changes, SECRET)
    assert caught.value.field == field


@pytest.mark.parametrize("key", ["", "s3cret", rsa_pem(), p256_pem()[:-40]])
def test_a_key_that_is_none_is_not_shown(key: str) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check(FIELDS, {"key": key})
    assert caught.value.field == "secret.key" and "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_key_whose_lines_became_one_can_be_read() -> None:
    KIND.check(FIELDS, {"key": p256_pem().replace("\n", "\\n")})


@pytest.mark.parametrize("body", [{}, {"aps": "hi"}, {"notification": {}}])
def test_a_template_that_cannot_be(body: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as caught:
        KIND.check_content(body)
    assert caught.value.field == "aps"
