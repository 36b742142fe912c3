"""The ledger: answers, callbacks and recovery in any order, and tallies that are exact after each."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import permutations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.messages.rules.answers import (
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.messages.rules.jobs import Repeating
from shared.messages.rules.ledger import (
    EARLIER_ATTEMPTS,
    RANKS,
    TOO_FAST_OF_AN_ATTEMPT,
    Message,
    MessageState,
    News,
    add_tallies,
    answer,
    attempt_of,
    difference,
    give_back,
    hear,
    is_to_be_sent,
    recover,
    redact,
    ref_of,
    reject,
    state_of_refusal,
    write_ahead,
)

NOW = datetime(2026, 12, 24, tzinfo=UTC)
SOON = NOW + timedelta(seconds=1)
BLANK = Message(id="job/00000000/00000", app_id="app", credential_id="post", to="ana@example.com")

ANSWERS: list[Answer] = [
    CallAccepted("p-1"),
    CallRefused(Reason.REFUSED, "no"),
    CallRefused(Reason.UNREGISTERED, "gone"),
    NotNow("busy"),
    NotNow("slower", too_fast=True),
    LoginRefused(),
    CallUnanswered("broke off"),
]


def sending(message: Message = BLANK, *, owner: str = "w1", round: int = 0) -> Message:  # noqa: A002
    return write_ahead(message, owner=owner, until=SOON, round=round)


def answered(message: Message, given: Answer, *, attempts: int = 3) -> Message:
    changed = answer(message, message.attempt, given, at=NOW, attempts=attempts)
    assert changed is not None
    return changed


def news(state: MessageState, attempt: int = 1) -> News:
    return News(state=state, at=NOW, attempt=attempt)


@pytest.mark.parametrize(
    ("given_answer", "state", "reason"),
    [
        (CallAccepted("p-1"), MessageState.SENT, ""),
        (CallRefused(Reason.REFUSED), MessageState.FAILED, "refused"),
        (CallRefused(Reason.UNREGISTERED), MessageState.INVALID, "unregistered"),
        (CallRefused(Reason.HARD_BOUNCE), MessageState.INVALID, "hard-bounce"),
        (NotNow(), MessageState.UNSENT, ""),
        (LoginRefused(), MessageState.UNSENT, ""),
        (CallUnanswered(), MessageState.UNKNOWN, ""),
    ],
)
def test_each_answer_leads_to_its_state(given_answer: Answer, state: MessageState, reason: str) -> None:
    after = answered(sending(), given_answer)
    assert (after.state, after.reason, after.owner) == (state, reason, "")


def test_what_is_refused_for_now_is_given_up_after_so_many_attempts() -> None:
    message, states = BLANK, []
    for _ in range(3):
        message = answered(sending(message), NotNow("busy"))
        states.append(message.state)
    assert states == [MessageState.UNSENT, MessageState.UNSENT, MessageState.FAILED]
    assert message.reason == "gave-up"


@pytest.mark.parametrize("given_answer", [NotNow("busy"), NotNow("slower", too_fast=True), LoginRefused("no")])
def test_what_is_refused_for_now_too_late_is_given_up_and_not_open_again(given_answer: Answer) -> None:
    """Somebody else has decided that nobody can tell, and the job may be closed by now."""
    unknown = recover(sending(), owner="w2", now=SOON, repeats=False)
    assert unknown is not None
    assert unknown.is_unknown
    after = answered(unknown, given_answer)
    assert (after.state, after.reason) == (MessageState.FAILED, "gave-up")


def test_too_fast_and_a_refused_login_are_no_attempts() -> None:
    message = BLANK
    for given_answer in (NotNow(too_fast=True), LoginRefused()) * 5:
        message = answered(sending(message), given_answer)
    assert message.state is MessageState.UNSENT
    assert message.refused == 0


def test_too_fast_again_and_again_is_an_attempt() -> None:
    """Some providers say so of one recipient: others must not wait for that one for ever."""
    message, calls = BLANK, 0
    while message.state is MessageState.UNSENT:
        message, calls = answered(sending(message), NotNow(too_fast=True)), calls + 1
    assert (message.state, message.reason) == (MessageState.FAILED, "gave-up")
    assert calls == 3 * TOO_FAST_OF_AN_ATTEMPT


def test_what_is_given_back_leaves_no_attempt_behind() -> None:
    """However often it is, the names by which providers know the true attempts stay."""
    message = sending(replace(answered(sending(), NotNow()), ref="c/p-1"))
    for _ in range(EARLIER_ATTEMPTS + 1):
        message = sending(give_back(message))
    assert message.attempt == 2
    assert [(one.attempt, one.ref) for one in message.earlier] == [(1, "c/p-1")]


def test_only_what_was_called_there_is_sent_again_without_being_wanted() -> None:
    """An account that was given another URL, or another header, drops no call that was made before."""
    called = write_ahead(BLANK, owner="w1", until=SOON, repeats_within="here")
    assert Repeating(within="here").allows(called)
    assert Repeating(wanted=True, within="there").allows(called)
    assert not Repeating(within="there").allows(called)
    assert not Repeating().allows(called)
    assert not Repeating().allows(sending())
    assert not Repeating(within="there").allows(sending())


def test_an_answer_to_another_attempt_changes_nothing() -> None:
    second = sending(answered(sending(), NotNow()))
    assert answer(second, 1, CallAccepted("p-1"), at=NOW, attempts=3) is None


def test_a_late_answer_resolves_what_was_unknown() -> None:
    unknown = recover(sending(), owner="w2", now=SOON, repeats=False)
    assert unknown is not None
    assert answered(unknown, CallAccepted("p-1")).state is MessageState.SENT
    assert answer(unknown, 1, CallUnanswered(), at=NOW, attempts=3) is None


def test_a_callback_that_overtakes_the_answer_stays_and_the_id_comes_with_the_answer() -> None:
    delivered = hear(sending(), news(MessageState.DELIVERED))
    assert delivered is not None
    after = answer(delivered, 1, CallAccepted("p-1"), at=NOW, attempts=3)
    assert after is not None
    assert (after.state, after.ref) == (MessageState.DELIVERED, "post/p-1")
    assert answer(after, 1, CallAccepted("p-1"), at=NOW, attempts=3) is None


def test_an_error_stays_over_what_comes_later() -> None:
    message = answered(sending(), CallAccepted("p-1"))
    for state in (MessageState.DELIVERED, MessageState.FAILED, MessageState.DELIVERED):
        message = hear(message, news(state)) or message
    assert message.state is MessageState.FAILED


def test_of_an_earlier_attempt_only_good_news_counts() -> None:
    second = sending(answered(sending(), CallUnanswered()))
    assert second.attempt == 2
    assert hear(second, news(MessageState.FAILED, attempt=1)) is None
    assert hear(second, news(MessageState.FAILED, attempt=0)) is None
    delivered = hear(second, news(MessageState.DELIVERED, attempt=1))
    assert delivered is not None
    assert delivered.state is MessageState.DELIVERED
    assert hear(second, news(MessageState.FAILED, attempt=2)) is not None


def test_what_an_account_calls_a_message_is_kept_with_the_account() -> None:
    assert answered(sending(), CallAccepted("p-1")).ref == ref_of("post", "p-1") == "post/p-1"
    assert ref_of("post", "") == ref_of("post", "p" * 256) == ref_of("post", "p\ud800") == ""


def test_the_id_comes_with_a_callback_of_the_last_attempt() -> None:
    unknown = answered(sending(), CallUnanswered())
    told = News(state=MessageState.SENT, at=NOW, attempt=1, ref="post/p-1")
    heard = hear(unknown, told)
    assert heard is not None
    assert heard.ref == "post/p-1"
    second = hear(sending(unknown), told)
    assert second is not None
    assert second.ref == ""


def test_an_attempt_is_known_by_what_the_provider_calls_it() -> None:
    second = sending(answered(sending(), CallAccepted("p-1")))
    third = answered(sending(second), CallAccepted("p-3"))
    assert [attempt_of(third, ref) for ref in ("post/p-1", "post/p-3", "post/p-2", "")] == [1, 3, 0, 0]


def test_a_refusal_leaves_an_address_or_condemns_it() -> None:
    assert state_of_refusal(Reason.SOFT_BOUNCE) is MessageState.FAILED
    assert state_of_refusal(Reason.HARD_BOUNCE) is MessageState.INVALID


def test_news_of_what_was_never_called_is_none() -> None:
    assert hear(BLANK, news(MessageState.SENT, attempt=0)) is None


@given(st.lists(st.sampled_from(sorted(RANKS, key=RANKS.__getitem__)[3:]), min_size=2, max_size=4))
def test_callbacks_lead_to_the_same_state_in_any_order(states: list[MessageState]) -> None:
    ends = set()
    told = [News(state=state, at=NOW, attempt=1, ref=ref_of("post", "p")) for state in states]
    for order in permutations([*told, None]):
        message = sending()
        for event in order:
            changed = (
                answer(message, 1, CallAccepted("p"), at=NOW, attempts=3) if event is None else hear(message, event)
            )
            message = changed or message
        ends.add((message.state, message.ref))
    assert len(ends) == 1


def test_who_is_still_calling_is_left_alone() -> None:
    message = sending(owner="w1")
    assert recover(message, owner="w2", now=NOW, repeats=True) is None
    assert recover(message, owner="w1", now=SOON, repeats=True) is None
    assert recover(answered(message, CallAccepted()), owner="w2", now=SOON, repeats=True) is None


def test_what_may_be_repeated_is_unsent_again_and_counted() -> None:
    again = recover(sending(), owner="w2", now=SOON, repeats=True)
    assert again is not None
    assert (again.state, again.repeated) == (MessageState.UNSENT, 1)


def test_a_call_after_one_that_may_have_arrived_is_counted() -> None:
    unknown = answered(sending(), CallUnanswered())
    assert (unknown.state, unknown.repeated) == (MessageState.UNKNOWN, 0)
    again = write_ahead(unknown, owner="w1", until=SOON, round=1)
    assert (again.attempt, again.repeated) == (2, 1)
    failed = answered(sending(), CallRefused())
    assert write_ahead(failed, owner="w1", until=SOON, round=1).repeated == 0


def test_what_was_never_called_keeps_its_number() -> None:
    message = give_back(sending())
    assert (message.state, message.attempt) == (MessageState.UNSENT, 0)
    assert sending(message).attempt == 1


def test_the_last_attempts_are_kept() -> None:
    message = BLANK
    for _ in range(EARLIER_ATTEMPTS + 3):
        message = answered(sending(message), CallUnanswered())
    assert [one.attempt for one in message.earlier] == [3, 4, 5, 6, 7]


FAILED = frozenset({MessageState.FAILED})


@pytest.mark.parametrize(
    ("message", "round_", "states", "is_sent"),
    [
        (None, 0, FAILED, True),
        (None, 1, FAILED, False),
        (None, 1, frozenset({MessageState.UNSENT}), True),
        (answered(sending(), NotNow()), 0, FAILED, True),
        (answered(sending(), CallAccepted()), 0, FAILED, False),
        (answered(sending(), CallUnanswered()), 0, FAILED, False),
        (answered(sending(), CallRefused()), 1, FAILED, True),
        (answered(sending(), CallRefused(Reason.MALFORMED)), 1, FAILED, False),
        (answered(sending(round=1), CallRefused()), 1, FAILED, False),
        (answered(sending(round=1), NotNow()), 1, FAILED, True),
        (answered(sending(), NotNow()), 1, FAILED, False),
    ],
)
def test_a_round_sends_what_is_wanted_once(
    message: Message | None, round_: int, states: frozenset[MessageState], is_sent: bool
) -> None:
    assert is_to_be_sent(message, round=round_, states=states) is is_sent


@given(st.integers(0, 2**32))
def test_tallies_are_what_a_count_of_the_entries_gives(seed: int) -> None:
    random = Random(seed)
    entries: dict[int, Message] = {}
    tallies = []
    for _ in range(60):
        number = random.randrange(4)
        before = entries.get(number)
        after = step(before or BLANK, random)
        if after is not None:
            tallies.append(difference(before, after))
            entries[number] = after
    counted: Counter[str] = Counter()
    for entry in entries.values():
        counted[entry.state.value] += entry.state is not MessageState.UNSENT
        counted["repeated"] += entry.repeated
        if entry.reason:
            counted[f"reasons.{entry.reason}"] += 1
    assert add_tallies(tallies) == {name: count for name, count in counted.items() if count}


def step(message: Message, random: Random) -> Message | None:
    """One thing that may happen to an entry."""
    match random.randrange(6):
        case 0 if message.state is MessageState.UNSENT:
            return write_ahead(message, owner=random.choice("ab"), until=NOW)
        case 1:
            return answer(message, random.randint(1, 3), random.choice(ANSWERS), at=NOW, attempts=3)
        case 2:
            state = random.choice(list(MessageState)[3:])
            return hear(message, News(state=state, at=NOW, attempt=random.randint(0, 3), reason="other"))
        case 3:
            return recover(message, owner=random.choice("abc"), now=NOW, repeats=random.random() < 0.5)
        case 4 if message.state is MessageState.SENDING:
            return give_back(message)
        case 5 if message.state is MessageState.UNSENT and not message.attempt:
            return reject(message, Reason.SUPPRESSED, at=NOW)
    return None


def delivered(message: Message) -> Message:
    after = hear(message, News(state=MessageState.DELIVERED, at=NOW, attempt=message.attempt, detail="by ana"))
    assert after is not None
    return after


def test_a_redacted_entry_tells_nobody_and_counts_as_before() -> None:
    failed = answered(sending(), CallRefused(Reason.REFUSED, "ana is unknown"))
    entry = answered(sending(failed, round=1), CallRefused(Reason.UNREGISTERED, "ana is gone"))
    redacted = redact(entry, at=NOW)
    assert (redacted.to, redacted.detail, redacted.redacted_at, redacted.v) == ("", "", NOW, entry.v + 1)
    assert [attempt.detail for attempt in redacted.earlier] == [""]
    assert difference(entry, redacted) == {}
    assert (redacted.state, redacted.reason, redacted.attempt) == (entry.state, entry.reason, entry.attempt)
    assert redact(redacted, at=SOON).redacted_at == NOW


def test_what_is_told_of_a_redacted_entry_counts_and_names_nobody() -> None:
    after = delivered(redact(answered(sending(), CallAccepted("p-1")), at=NOW))
    assert (after.state, after.detail, after.to, after.redacted_at) == (MessageState.DELIVERED, "", "", NOW)


def test_an_entry_that_is_called_again_has_its_recipient_again() -> None:
    redacted = redact(answered(sending(), CallUnanswered()), at=NOW)
    again = write_ahead(redacted, owner="w2", until=SOON, round=1, to="ana@example.com")
    assert (again.to, again.redacted_at) == ("ana@example.com", None)
    assert delivered(again).detail == "by ana"
    assert write_ahead(sending(), owner="w2", until=SOON, to="other@example.com").to == "ana@example.com"
