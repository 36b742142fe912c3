"""What follows an attempt, on a real database: by those who hold the claim, and by those who have lost it."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from carillon.wire.clock import Retry
from shared.clock.rules.callbacks import Undeliverable
from shared.clock.rules.occurrences import Occurrence
from shared.clock.rules.outcomes import Outcome, OutcomeResult
from shared.clock.rules.schedules import Definition, Schedule
from shared.clock.schedules import Retried, ScheduleFlow
from shared.clock.settlement import Attempt, Settlement, not_attempted
from shared.clock.store_occurrences import Visible, fresh_token
from shared.core.errors import Unavailable
from shared.store import Store
from tests.clock.made import AHEAD, HOUR, HOURLY, LIST, accepted, pending, wanted

pytestmark = pytest.mark.native

SECOND = timedelta(seconds=1)
REFUSED = Undeliverable("no such queue")
IMPATIENT = Retry(attempts=1)


@pytest.fixture
def settlement(store: Store) -> Settlement:
    return Settlement(store, tick=SECOND)


async def claimed(store: Store, schedule: Schedule) -> Occurrence:
    """Its first entry, by a claim of this moment."""
    first = (await pending(store))[0]
    token = fresh_token()
    assert await store.occurrences.claim(first.shard, token, Visible(AHEAD + 9 * HOUR), leased_until=AHEAD + HOUR)
    return next(each for each in await store.occurrences.read(token, limit=100) if each.id == first.id)


async def made(flow: ScheduleFlow, definition: Definition) -> Schedule:
    return (await accepted(flow, wanted(definition=definition))).schedule


async def test_what_a_dead_process_told_of_an_attempt_is_overruled_by_its_repeat(
    store: Store, flow: ScheduleFlow, settlement: Settlement, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = await made(flow, LIST)

    async def die(_: object) -> None:
        raise Unavailable("it came no further")

    refused = Attempt(await claimed(store, schedule), schedule, AHEAD, REFUSED)
    with monkeypatch.context() as patch:
        patch.setattr(store.occurrences, "retry", die)
        with pytest.raises(Unavailable):
            await settlement.settle([refused])
    again = await claimed(store, schedule)
    assert again.attempts == 0
    await settlement.settle([Attempt(again, schedule, AHEAD + SECOND)])
    [outcome] = await store.outcomes.latest(schedule.owner, 10)
    assert (outcome.result, outcome.attempt, outcome.error) == (OutcomeResult.FIRED, 1, "")


@pytest.mark.parametrize("definition", [replace(LIST, retry=IMPATIENT), HOURLY])
async def test_who_lost_the_claim_buries_nothing_and_copies_nothing(
    store: Store, flow: ScheduleFlow, settlement: Settlement, definition: Definition
) -> None:
    schedule = await made(flow, definition)
    lost, mine = await claimed(store, schedule), await claimed(store, schedule)
    await settlement.settle([Attempt(mine, schedule, AHEAD)])
    left = await pending(store)
    await settlement.settle([Attempt(lost, schedule, AHEAD, REFUSED)])
    assert await pending(store) == left
    assert await store.dead_letters.page("ns", limit=10) == []
    assert [each.result for each in await store.outcomes.latest(schedule.owner, 10)] == [OutcomeResult.FIRED]


async def test_a_refusal_counts_though_a_pause_came_meanwhile(
    store: Store, flow: ScheduleFlow, settlement: Settlement
) -> None:
    schedule = await made(flow, replace(LIST, retry=IMPATIENT))
    mine = await claimed(store, schedule)
    await flow.pause(schedule.id)
    await settlement.settle([Attempt(mine, schedule, AHEAD, REFUSED)])
    assert [each.due for each in await store.dead_letters.page("ns", limit=10)] == [mine.due]
    assert [each.due for each in await pending(store)] == [AHEAD + HOUR]


async def test_the_pause_before_the_next_attempt_begins_when_the_last_one_ended(
    store: Store, flow: ScheduleFlow, settlement: Settlement
) -> None:
    schedule = await made(flow, replace(LIST, retry=Retry(first_delay_seconds=10)))
    mine = await claimed(store, schedule)
    await settlement.settle([Attempt(mine, schedule, AHEAD, REFUSED, lasted=HOUR)])
    [again, _] = await pending(store)
    assert AHEAD + HOUR + 8 * SECOND <= again.fires_at <= AHEAD + HOUR + 10 * SECOND
    assert (again.attempts, again.token) == (1, "")


async def test_what_kills_its_processes_is_dead_at_once(
    store: Store, flow: ScheduleFlow, settlement: Settlement
) -> None:
    """However many attempts it has left: each of them would kill as many processes."""
    schedule = await made(flow, replace(LIST, retry=Retry(attempts=9)))
    mine = await claimed(store, schedule)
    await settlement.settle([not_attempted(replace(mine, begun=5), schedule, AHEAD)])
    assert [each.due for each in await store.dead_letters.page("ns", limit=10)] == [mine.due]
    assert mine.due not in {each.due for each in await pending(store)}


async def test_a_series_that_was_held_up_goes_on_where_its_rule_begins(
    store: Store, flow: ScheduleFlow, settlement: Settlement
) -> None:
    schedule = await made(flow, HOURLY)
    mine = await claimed(store, schedule)
    skipped = Attempt(mine, schedule, AHEAD + 50 * HOUR, skipped=True, passed_over=AHEAD + 48 * HOUR)
    [moved] = await settlement.settle([skipped])
    assert moved.due == AHEAD + 49 * HOUR
    assert [each.due for each in await pending(store)] == [moved.due]
    assert [each.result for each in await store.outcomes.latest(schedule.owner, 10)] == [OutcomeResult.SKIPPED]


async def test_who_does_not_answer_is_asked_more_and_more_rarely(
    store: Store, flow: ScheduleFlow, settlement: Settlement
) -> None:
    schedule = await made(flow, LIST)
    for late, least, most in ((0, 0.5, 1), (20, 2.5, 5), (9_999, 5, 10)):
        mine = await claimed(store, schedule)
        at = AHEAD + late * SECOND
        await settlement.settle([Attempt(mine, schedule, at, Unavailable("away"))])
        again = (await pending(store))[0]
        assert at + least * SECOND <= again.fires_at <= at + most * SECOND
        assert (again.attempts, again.claims) == (0, 0)


async def test_a_letter_that_is_retried_before_its_instant_has_gone_stays(
    store: Store,
    flow: ScheduleFlow,
    settlement: Settlement,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = await made(flow, replace(LIST, retry=IMPATIENT))
    dying = await claimed(store, schedule)
    add, retried = store.outcomes.add, []

    async def add_late(outcomes: Sequence[Outcome]) -> None:
        retried.append(await flow.retry(await store.dead_letters.page("ns", limit=10)))
        await add(outcomes)

    with monkeypatch.context() as patch:
        patch.setattr(store.outcomes, "add", add_late)
        await settlement.settle([Attempt(dying, schedule, AHEAD, REFUSED)])
    [letter] = await store.dead_letters.page("ns", limit=10)
    assert retried == [Retried(again=[], underway=[letter.id])]
    assert await flow.retry([letter]) == Retried(again=[letter.id])
    assert letter.due in {each.due for each in await pending(store)}
    assert await store.dead_letters.page("ns", limit=10) == []
