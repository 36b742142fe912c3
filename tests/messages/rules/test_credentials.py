from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.core.errors import Conflict, Invalid
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import (
    CREDENTIAL_TRANSITIONS,
    Credential,
    CredentialStatus,
    OnUnknown,
    SendRetry,
    check_credential,
    check_move,
    check_secret,
    check_sends,
    default_max_in_flight,
    default_on_unknown,
    default_rate,
    trial_content,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CREDENTIAL = Credential(
    id="0190b5a2-0000-7000-8000-000000000000",
    app_id="0190b5a2-0000-7000-8000-00000000000a",
    name="sms-of-spain",
    kind="twilio",
    fields={"from": "+14155550100"},
    secret="1.abc.sealed",
    rate=10.0,
    max_in_flight=20,
    test_recipient="+34600000000",
    created_by="ana@example.com",
    created_at=NOW,
    updated_at=NOW,
)


def test_a_good_one_passes() -> None:
    check_credential(CREDENTIAL)


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("name", {"name": ""}),
        ("name", {"name": "a" * 51}),
        ("name", {"name": "SMS"}),
        ("name", {"name": "a_b"}),
        ("name", {"name": "a\n"}),
        ("rate", {"rate": 0}),
        ("rate", {"rate": 0.0099}),
        ("rate", {"rate": 10_001}),
        ("rate", {"rate": float("nan")}),
        ("rate", {"rate": float("inf")}),
        ("maxInFlight", {"max_in_flight": 0}),
        ("maxInFlight", {"max_in_flight": 2_001}),
        ("retry.attempts", {"retry": SendRetry(attempts=0)}),
        ("retry.attempts", {"retry": SendRetry(attempts=21)}),
        ("retry.firstDelaySeconds", {"retry": SendRetry(first_delay_seconds=0)}),
        ("retry.factor", {"retry": SendRetry(factor=0.5)}),
        ("retry.factor", {"retry": SendRetry(factor=float("nan"))}),
        ("retry.capSeconds", {"retry": SendRetry(cap_seconds=4)}),
        ("retry.capSeconds", {"retry": SendRetry(cap_seconds=86_401)}),
        ("testRecipient", {"test_recipient": ""}),
        ("testRecipient", {"test_recipient": " a@example.com"}),
        ("testRecipient", {"test_recipient": "a@example.com\r\nBcc: b@example.com"}),
        ("testRecipient", {"test_recipient": "a" * 4_097}),
        ("fields", {"fields": {"template": "a" * 65_536}}),
        ("testContent", {"test_content": {"text": "a" * 65_536}}),
    ],
)
def test_what_breaks_a_rule_is_named(field: str, change: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        check_credential(replace(CREDENTIAL, **change))
    assert refused.value.field == field


@pytest.mark.parametrize("name", ["a", "0", "-", "a" * 50])
@pytest.mark.parametrize("rate", [0.01, 10_000])
@pytest.mark.parametrize("most", [1, 2_000])
def test_the_ends_of_the_rules_pass(name: str, rate: float, most: int) -> None:
    check_credential(replace(CREDENTIAL, name=name, rate=rate, max_in_flight=most))


@pytest.mark.parametrize(
    ("secret", "field"),
    [
        ({f"part{n}": "hush" for n in range(21)}, "secret"),
        ({"": "hush"}, "secret"),
        ({"a b": "hush"}, "secret"),
        ({"a" * 51: "hush"}, "secret"),
        ({"token": ""}, "secret.token"),
        ({"token": "hush" * 4_097}, "secret.token"),
    ],
)
def test_a_secret_that_cannot_be_is_refused_and_not_shown(secret: dict[str, str], field: str) -> None:
    with pytest.raises(Invalid) as refused:
        check_secret(secret)
    assert (refused.value.field, refused.value.value) == (field, None)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(("rate", "most"), [(0.01, 20), (40, 20), (41, 21), (50, 25), (2_000, 1_000), (10_000, 1_000)])
def test_calls_in_flight_follow_from_the_rate(rate: float, most: int) -> None:
    assert default_max_in_flight(rate) == most


def test_another_rate_takes_along_what_followed_from_it_only() -> None:
    assert CREDENTIAL.with_rate(500).max_in_flight == 250
    assert replace(CREDENTIAL, max_in_flight=7).with_rate(500).max_in_flight == 7


def test_defaults_are_those_of_the_kind() -> None:
    assert [default_rate(kind) for kind in ("twilio", "smtp")] == [10, 50]
    unknown = {channel: default_on_unknown(channel) for channel in Channel}
    assert [channel for channel, policy in unknown.items() if policy is OnUnknown.RETRY] == [Channel.PUSH]


@given(st.integers(1, 20), st.integers(1, 100), st.floats(0.1, 100), st.floats(1, 100), st.floats(100, 86_400))
def test_pauses_grow_up_to_the_cap(attempts: int, attempt: int, first: float, factor: float, cap: float) -> None:
    retry = SendRetry(attempts=attempts, first_delay_seconds=first, factor=factor, cap_seconds=cap)
    delays = [retry.delay_after(n) for n in (1, attempt, attempt + 1)]
    assert delays == sorted(delays)
    assert delays[0] == timedelta(seconds=first)
    assert delays[-1] <= timedelta(seconds=cap)


def test_the_usual_pauses() -> None:
    assert [SendRetry(attempts=9).delay_after(n).total_seconds() for n in range(1, 6)] == [5, 20, 80, 300, 300]


@pytest.mark.parametrize("status", CredentialStatus)
@pytest.mark.parametrize("to", CredentialStatus)
def test_only_the_table_has_moves(status: CredentialStatus, to: CredentialStatus) -> None:
    credential = replace(CREDENTIAL, status=status)
    if to in CREDENTIAL_TRANSITIONS[status]:
        check_move(credential, to)
    else:
        with pytest.raises(Conflict, match=status.value):
            check_move(credential, to)


@pytest.mark.parametrize("status", CredentialStatus)
def test_only_an_active_one_sends(status: CredentialStatus) -> None:
    credential = replace(CREDENTIAL, status=status, why="nobody pays")
    assert credential.sends is (status is CredentialStatus.ACTIVE)
    if credential.sends:
        check_sends(credential)
    else:
        with pytest.raises(Conflict, match=f"sms-of-spain is {status.value}: nobody pays"):
            check_sends(credential)


@pytest.mark.parametrize(
    ("status", "then"),
    [
        (CredentialStatus.ACTIVE, CredentialStatus.ACTIVE),
        (CredentialStatus.SUSPENDED, CredentialStatus.SUSPENDED),
        (CredentialStatus.REJECTED, CredentialStatus.ACTIVE),
    ],
)
def test_a_new_secret_opens_what_the_provider_had_closed(status: CredentialStatus, then: CredentialStatus) -> None:
    changed = replace(CREDENTIAL, status=status, why="w").with_secret({"from": "1"}, "1.abc.other", "f1")
    assert (changed.status, changed.secret, changed.fingerprint, changed.fields) == (
        then, "1.abc.other", "f1", {"from": "1"},
    )  # fmt: skip
    assert changed.why == ("" if status is CredentialStatus.REJECTED else "w")


@pytest.mark.parametrize(
    ("channel", "keys"),
    [
        (Channel.MAIL, {"subject", "text"}),
        (Channel.SMS, {"text"}),
        (Channel.OTHER, {"text"}),
        (Channel.PUSH, {"notification"}),
    ],
)
def test_a_test_message_suits_its_channel(channel: Channel, keys: set[str]) -> None:
    assert trial_content(CREDENTIAL, channel).keys() == keys
    assert trial_content(replace(CREDENTIAL, test_content={"a": 1}), channel) == {"a": 1}


def test_apns_takes_its_own() -> None:
    assert trial_content(replace(CREDENTIAL, kind="apns"), Channel.PUSH).keys() == {"aps"}


def test_who_may_use_it_is_told_once() -> None:
    shared = replace(CREDENTIAL, shared_with=("b", CREDENTIAL.app_id))
    assert shared.usable_by == (CREDENTIAL.app_id, "b")


def test_what_is_printed_shows_nothing() -> None:
    shown = repr(replace(CREDENTIAL, secret="hush", fields={"a": "hush"}, test_recipient="hush"))
    assert "hush" not in shown
