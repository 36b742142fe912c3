"""The kind `ses`: what an account must be made of, what SES is told besides, and what its replies mean."""

from collections.abc import AsyncIterator, Mapping
from email import message_from_string
from email.policy import default
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing
from shared.messages.rules.answers import Answer, CallAccepted, CallRefused, LoginRefused, NotNow, Reason
from shared.providers import Provider, ProviderRules
from shared.providers.ses import SesKind, key_of_tag, tag_of
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Rule
from tests.providers.smtp_fake import PASSWORD

FIELDS = {"host": "127.0.0.1", "tls": "never", "from": "news@example.com", "user": "AKIA1"}
SECRET = {"password": PASSWORD}
NO_HTTP: Outgoing = None  # type: ignore[assignment]
KIND = SesKind(ProviderRules(call_seconds=20.0, allowed_networks=("127.0.0.1/32",)))
OPENED: list[Provider] = []


@pytest.fixture(autouse=True)
async def _close_all() -> AsyncIterator[None]:
    yield
    while OPENED:
        await OPENED.pop().close()


@pytest.fixture
async def ses(fakes: Mapping[str, FakeProcess]) -> FakeProcess:
    fake = fakes["ses_fake"]
    await fake.answer(always=Rule(250))
    return fake


def provider_at(ses: FakeProcess, **changes: Any) -> Provider:
    fields = FIELDS | {"port": ses.port} | changes
    KIND.check(fields, SECRET)
    provider = KIND.open(fields, SECRET, NO_HTTP)
    OPENED.append(provider)
    return provider


async def send(provider: Provider, to: str = "ana@example.org") -> Answer:
    return await provider.send({"subject": "s", "text": "t"}, to, "6650f3a1.00000007.00042~2", lambda: True)


async def test_its_id_is_the_mails_and_the_tag_names_ours(ses: FakeProcess) -> None:
    answer = await send(provider_at(ses, configurationSet="carillon-events"))
    assert isinstance(answer, CallAccepted) and answer.provider_id.endswith("-2d1ce6b3c1a2-000000")
    (arrived,) = (await ses.tell()).arrived
    mail = message_from_string(arrived.body, policy=default)
    assert mail["X-SES-MESSAGE-TAGS"] == "carillon_message=6650f3a1_2e00000007_2e00042_7e2"
    assert mail["X-SES-CONFIGURATION-SET"] == "carillon-events"
    assert mail["X-Carillon-Message"] == "6650f3a1.00000007.00042~2"


async def test_without_a_configuration_set_none_is_named(ses: FakeProcess) -> None:
    await send(provider_at(ses))
    (arrived,) = (await ses.tell()).arrived
    assert message_from_string(arrived.body)["X-SES-CONFIGURATION-SET"] is None


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=80))
def test_a_tag_bears_any_key(key: str) -> None:
    tag = tag_of(key)
    assert key_of_tag(tag) == key
    assert all(character.isascii() and (character.isalnum() or character in "_-") for character in tag)


async def test_its_rate_is_told_as_too_fast(ses: FakeProcess) -> None:
    too_fast = Rule(454, "Throttling failure: Maximum sending rate exceeded.")
    await ses.answer(Rule(250), Rule(250), always=too_fast)
    provider = provider_at(ses)
    answers = [await send(provider) for _ in range(4)]
    assert [type(answer) for answer in answers] == [CallAccepted, CallAccepted, NotNow, NotNow]
    assert answers[2] == NotNow("SMTP 454: Throttling failure: Maximum sending rate exceeded.", too_fast=True)
    assert (await ses.tell()).counts.connections == 1


async def test_a_sender_that_is_not_verified_is_refused(ses: FakeProcess) -> None:
    answer = await send(provider_at(ses, **{"from": "news@else.example"}))
    assert isinstance(answer, CallRefused) and answer.reason is Reason.REFUSED


async def test_a_set_that_does_not_exist_is_refused(ses: FakeProcess) -> None:
    answer = await send(provider_at(ses, configurationSet="nobodys"))
    assert isinstance(answer, CallRefused) and "does not exist" in answer.detail


async def test_an_address_that_it_cannot_read_is_malformed(ses: FakeProcess) -> None:
    answer = await send(provider_at(ses), "ana@x_y.example")
    assert answer == CallRefused(Reason.MALFORMED, "SMTP 501: Invalid RCPT TO address provided")


@pytest.mark.parametrize(
    ("status", "words", "expected"),
    [
        (421, "Too many concurrent SMTP connections", NotNow(too_fast=True)),
        (451, "Temporary service failure", NotNow()),
        (454, "Throttling failure: Daily message quota exceeded.", NotNow(too_fast=True)),
        (454, "Temporary authentication failure", NotNow()),
        (530, "Authentication required", LoginRefused()),
        (535, "Account not subscribed to SES", LoginRefused()),
        (552, "Message is too long.", CallRefused(Reason.REFUSED)),
        (554, "Access denied: User x is not authorized to perform ses:SendRawEmail", LoginRefused()),
        (554, "Message rejected: Sending suspended for this account", LoginRefused()),
        (554, "Message rejected: Sending paused for this account.", LoginRefused()),
        (554, "Transaction failed: Illegal address", CallRefused(Reason.MALFORMED)),
        (554, "Transaction failed: Missing final '@domain'", CallRefused(Reason.MALFORMED)),
    ],
)
async def test_what_a_reply_means(ses: FakeProcess, status: int, words: str, expected: Answer) -> None:
    await ses.answer(always=Rule(status, words))
    answer = await send(provider_at(ses))
    assert not isinstance(answer, CallAccepted) and answer.detail == f"SMTP {status}: {words}"
    assert type(answer) is type(expected)
    assert getattr(answer, "reason", None) == getattr(expected, "reason", None)
    assert getattr(answer, "too_fast", None) == getattr(expected, "too_fast", None)


async def test_without_the_right_password_nobody_comes_in(ses: FakeProcess) -> None:
    provider = KIND.open(FIELDS | {"port": ses.port}, {"password": "another"}, NO_HTTP)
    OPENED.append(provider)
    assert isinstance(await send(provider), LoginRefused)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"user": ""}, "user"),
        ({"host": "10.0.0.1"}, "host"),
        ({"configurationSet": "a b"}, "configurationSet"),
        ({"configurationSet": "a\r\nBcc: b"}, "configurationSet"),
        ({"topicArns": ["arn:aws:sqs:eu-west-1:123456789012:mails"]}, "topicArns[0]"),
        ({"topicArns": "x"}, "topicArns"),
        ({"topics": []}, "topics"),
    ],
)
def test_an_account_that_cannot_be(changes: dict[str, Any], field: str) -> None:
    fields = {"host": "email-smtp.eu-west-1.amazonaws.com", "from": "news@example.com", "user": "AKIA1"} | changes
    with pytest.raises(Invalid) as caught:
        KIND.check(fields, SECRET if fields["user"] else {})
    assert caught.value.field == field


def test_an_account_that_can_be() -> None:
    topics = ["arn:aws:sns:eu-west-1:123456789012:mails", "arn:aws-cn:sns:cn-north-1:123456789012:mails"]
    fields = {"host": "email-smtp.eu-west-1.amazonaws.com", "from": "news@example.com", "user": "AKIA1"}
    KIND.check(fields | {"topicArns": topics, "configurationSet": "news_1-a"}, SECRET)
