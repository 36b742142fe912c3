"""What every kind of provider holds to (`shared.providers`), as a fake with a clock of its own sees it."""

import asyncio
import json
import time
import traceback

import msgspec
import pytest

from shared.messages.rules.answers import Answer, CallAccepted, CallRefused, CallUnanswered, LoginRefused, NotNow
from shared.providers import NotCalled, Provider
from tests.providers.accounts import Account, NetworkAccount
from tests.providers.rules import Cut, Rule
from tests.waiting import until

KEY = "6650f3a1.00000007.00042~1"


async def send(provider: Provider, account: Account, key: str = KEY) -> Answer:
    return await provider.send(account.content, account.to, key, lambda: True)


async def answer_of(account: Account) -> Answer:
    """What one call came to, of which the provider was told once at most."""
    answer = await send(account.open(), account)
    assert len(await account.arrived()) <= 1
    return answer


async def have_ended(account: NetworkAccount, count: int) -> None:
    """Wait until the provider has seen the end of so many connections."""

    async def look() -> bool:
        return (await account.fake.tell()).counts.ended >= count

    await until(look, "the ends of connections")


async def test_an_accepted_message_arrived_once_and_as_it_was(account: Account) -> None:
    await account.have_said("accepted")
    answer = await answer_of(account)
    assert isinstance(answer, CallAccepted) and answer.provider_id
    (message,) = await account.arrived()
    assert (message.key, message.content) == (KEY, account.content)


async def test_a_slow_answer_is_waited_for(account: Account) -> None:
    await account.have_said("slow")
    assert isinstance(await answer_of(account), CallAccepted)


async def test_a_refusal_is_told(account: Account) -> None:
    await account.have_said("refused")
    answer = await answer_of(account)
    assert isinstance(answer, CallRefused) and answer.detail and account.to not in answer.detail


async def test_of_an_unclear_answer_nobody_can_tell(account: Account) -> None:
    await account.have_said("unclear")
    assert isinstance(await answer_of(account), CallUnanswered)


async def test_not_now_is_told(at_fake: NetworkAccount) -> None:
    await at_fake.have_said("not now")
    answer = await answer_of(at_fake)
    assert isinstance(answer, NotNow) and not answer.too_fast


async def test_too_fast_is_told_with_its_time(at_fake: NetworkAccount) -> None:
    await at_fake.have_said("too fast")
    answer = await answer_of(at_fake)
    assert isinstance(answer, NotNow) and answer.too_fast
    assert answer.retry_after == at_fake.asked_to_wait


async def test_a_refused_login_is_told(at_fake: NetworkAccount) -> None:
    await at_fake.have_said("login refused")
    assert isinstance(await answer_of(at_fake), LoginRefused)


async def test_who_is_refused_before_the_first_byte_sends_nothing(account: Account) -> None:
    await account.have_said("accepted")
    provider, asked = account.open(), 0

    def refuse() -> bool:
        nonlocal asked
        asked += 1
        return False

    with pytest.raises(NotCalled):
        await provider.send(account.content, account.to, KEY, refuse)
    assert asked == 1
    assert isinstance(await send(provider, account, "later~1"), CallAccepted)
    assert [message.key for message in await account.arrived()] == ["later~1"]


async def test_a_refusal_leaves_not_a_byte_on_the_wire(at_fake: NetworkAccount) -> None:
    provider = at_fake.open()
    with pytest.raises(NotCalled):
        await provider.send(at_fake.content, at_fake.to, KEY, lambda: False)
    await at_fake.hang_up(provider)
    # Once the provider has seen the end of the connection it has seen all that was sent on it.
    await have_ended(at_fake, 1)
    counts = (await at_fake.fake.tell()).counts
    assert (counts.connections, counts.bytes) == (1, 0)


async def test_the_question_comes_before_the_first_byte(at_fake: NetworkAccount) -> None:
    provider, asked = at_fake.open(), list[int]()

    def want() -> bool:
        asked.append(time.monotonic_ns())
        return True

    for number in range(3):
        await provider.send(at_fake.content, at_fake.to, f"{number}~1", want)
    assert all(at < message.began_ns for at, message in zip(asked, await at_fake.arrived(), strict=True))


async def test_where_nobody_listens_nothing_is_asked(at_nobody: NetworkAccount) -> None:
    answer = await at_nobody.open().send(at_nobody.content, at_nobody.to, KEY, pytest.fail)
    assert isinstance(answer, NotNow) and not answer.too_fast
    assert_shows_nothing(answer, at_nobody)


async def test_a_call_ends_by_its_time(at_fake: NetworkAccount) -> None:
    await at_fake.fake.answer(always=Rule(hang=True))
    at_fake.rules = msgspec.structs.replace(at_fake.rules, call_seconds=0.5)
    began = time.monotonic()
    assert isinstance(await answer_of(at_fake), CallUnanswered)
    assert 0.5 <= time.monotonic() - began < 30.0
    assert len(await at_fake.arrived()) == 1


@pytest.mark.parametrize("cut", [Cut.BEGINNING, Cut.CALL, Cut.ANSWER])
@pytest.mark.parametrize("kept", [False, True])
async def test_what_breaks_behind_the_first_byte_is_not_repeated(at_fake: NetworkAccount, cut: Cut, kept: bool) -> None:
    provider = at_fake.open()
    if kept:
        await at_fake.have_said("accepted")
        await send(provider, at_fake, "before~1")
        await at_fake.fake.forget()
    await at_fake.fake.answer(Rule(cut=cut), always=at_fake.rule("accepted"))
    answer = await send(provider, at_fake)
    before_its_data = at_fake.before_its_data_on_kept if kept else at_fake.before_its_data
    assert isinstance(answer, before_its_data if cut is Cut.BEGINNING else CallUnanswered)
    is_there = cut is not Cut.BEGINNING or before_its_data is CallAccepted
    assert len(await at_fake.arrived()) == is_there


async def test_a_connection_that_the_provider_has_closed_costs_no_message(at_fake: NetworkAccount) -> None:
    accepted = at_fake.rule("accepted")
    accepted.close = True
    await at_fake.fake.answer(always=accepted)
    provider = at_fake.open()
    for number in range(1, 6):
        assert isinstance(await send(provider, at_fake, f"{number}~1"), CallAccepted)
        await have_ended(at_fake, number)
    assert (await at_fake.fake.tell()).counts.connections == 5


async def test_a_connection_is_kept(at_fake: NetworkAccount) -> None:
    await at_fake.have_said("accepted")
    provider = at_fake.open()
    for number in range(5):
        await send(provider, at_fake, f"{number}~1")
    assert (await at_fake.fake.tell()).counts.connections == 1


@pytest.mark.parametrize("said", ["refused", "not now", "too fast", "login refused", "unclear"])
async def test_no_detail_shows_a_secret_or_an_address(at_fake: NetworkAccount, said: str) -> None:
    """The provider repeats all that it was told, and other people's addresses."""
    rule = at_fake.rule(said)
    others = "for <bob.other@example.org> and +65 9123 4567"
    echo = " ".join([*at_fake.secrets, at_fake.to, at_fake.to.upper(), json.dumps(at_fake.to), others])
    await at_fake.fake.answer(always=at_fake.echoing(rule, echo))
    answer = await answer_of(at_fake)
    assert not isinstance(answer, CallAccepted)
    assert_shows_nothing(answer, at_fake)
    assert "bob.other" not in answer.detail and "4567" not in answer.detail
    assert len(answer.detail) <= 255 and answer.detail.isprintable()


async def test_nothing_of_an_account_is_shown(at_fake: NetworkAccount) -> None:
    provider = at_fake.open()
    with pytest.raises(NotCalled) as caught:
        await provider.send(at_fake.content, at_fake.to, KEY, lambda: False)
    shown = repr(provider) + "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert not any(secret in shown for secret in (*at_fake.secrets, at_fake.to))


def assert_shows_nothing(answer: Answer, account: NetworkAccount) -> None:
    shown = repr(answer).lower()
    assert not any(secret.lower() in shown for secret in (*account.secrets, account.to))


async def test_addresses_and_texts_of_any_script_arrive(account: Account) -> None:
    await account.have_said("accepted")
    provider = account.open()
    for number, to in enumerate(account.addresses):
        assert isinstance(await provider.send(account.content, to, f"{number}~1", lambda: True), CallAccepted), to
    messages = await account.arrived()
    assert [message.content for message in messages] == [account.content] * len(account.addresses)


@pytest.mark.alone
async def test_a_hundred_are_in_flight_at_once(at_fake: NetworkAccount) -> None:
    await at_fake.have_said("slow")
    provider = at_fake.open()
    keys = [f"{number}~1" for number in range(100)]
    answers = await asyncio.gather(*(send(provider, at_fake, key) for key in keys))
    assert all(isinstance(answer, CallAccepted) for answer in answers)
    assert sorted(message.key for message in await at_fake.arrived()) == sorted(keys)
    assert (await at_fake.fake.tell()).counts.most > 50


async def test_a_repeat_under_the_same_key_is_told_as_one(account: Account) -> None:
    """Where a repeat is safe, the provider can recognise it."""
    if not account.kind.repeats_safely(account.fields):
        return
    await account.have_said("accepted")
    provider = account.open()
    for attempt in (1, 2):
        assert isinstance(await send(provider, account, f"m~{attempt}"), CallAccepted)
    assert {message.key.partition("~")[0] for message in await account.arrived()} == {"m"}


async def test_a_closed_account_sends_nothing_more_or_goes_on(account: Account) -> None:
    await account.have_said("accepted")
    provider = account.open()
    await provider.close()
    await provider.close()
    assert isinstance(await send(provider, account), CallAccepted | NotNow)
