"""Bulk actions: whatever dies, comes twice or is cancelled, each thing is acted on once and none is forgotten."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from services.worker.console.bulk import BulkRunner
from shared.accounts.rules.callers import Token, token_namespace
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import ScheduleState, schedule_id
from shared.clock.schedules import ScheduleFlow, Wanted
from shared.console import bulk
from shared.console import bulk as bulk_things
from shared.console.bulk import BulkFlow, BulkLetters, BulkSchedules
from shared.console.rules.bulk_actions import BULK_QUEUE, BulkAct, BulkAction, BulkFilter, BulkState, RunBulkAction
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.runtime.faults import FaultInjected, arm
from shared.store import Store
from tests.clock.made import HOURLY, accepted
from tests.queues import task_broker

pytestmark = pytest.mark.native

TOKEN = Token(id="0190b5a2-0000-7000-8000-000000000001", name="console", digest="d")
NAMESPACE = token_namespace(TOKEN.id)
LETTERS = 23
ALL = BulkFilter(namespace=NAMESPACE)
DIED = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(BulkLetters, "PAGE", 5)
    monkeypatch.setattr(BulkSchedules, "PAGE", 5)
    yield
    arm("")


@pytest.fixture
async def broker() -> MemoryBroker:
    return await task_broker()


@pytest.fixture
async def bulks(store: Store, flow: ScheduleFlow, broker: MemoryBroker) -> BulkFlow:
    await store.tokens.add(TOKEN)
    things: dict[str, bulk_things.BulkThings] = {
        "dead-letter": BulkLetters(store, flow),
        "schedule": BulkSchedules(store, flow),
    }
    return BulkFlow(store, broker, flow._time, things)  # one time, so that what is made later is later


async def begun(bulks: BulkFlow, act: BulkAct = BulkAct.RETRY_LETTERS, filter: BulkFilter = ALL) -> BulkAction:
    now = await bulks.now()
    return await bulks.start(
        BulkAction(
            id="an action", act=act, filter=filter, reason="a test", matched=await bulks.count(act, filter),
            created_by="console", created_at=now, created_ns=0, namespace=NAMESPACE, token_id=TOKEN.id,
            leased_until=now,
        )
    )  # fmt: skip


async def buried(store: Store, flow: ScheduleFlow, count: int = LETTERS, key: str = "a") -> list[DeadLetter]:
    schedule = (await accepted(flow, Wanted(NAMESPACE, key, HOURLY))).schedule
    letters = [
        DeadLetter(
            id=f"{key}{n:03}", death=f"{key}{n:03}",
            namespace=NAMESPACE, key=key, schedule_id=schedule.id, generation=schedule.generation,
            due=DIED + timedelta(seconds=n), died_at=DIED + timedelta(minutes=n // 3), attempts=3, error="404",
        )
        for n in range(count)
    ]  # fmt: skip
    await store.dead_letters.add(letters)
    return letters


async def retried(store: Store, key: str = "a") -> list[datetime]:
    """The instants that are tried again; an occurrence that was added twice would stand there once."""
    pending = await store.occurrences.find_upcoming(f"schedule/{schedule_id(NAMESPACE, key)}", 1_000)
    return sorted(each.due for each in pending if each.due < datetime.now(UTC))


async def action(store: Store) -> BulkAction:
    found = await store.bulk_actions.get("an action")
    assert found is not None
    return found


async def work(bulks: BulkFlow) -> None:
    await BulkRunner(bulks).run(RunBulkAction(action_id="an action"))


async def expire(store: Store) -> None:
    """As if the lease of a worker that died had ended."""
    await store._database["bulk_actions"].update_many({}, {"$set": {"leased_until": DIED}})


async def test_all_that_matches_is_retried_and_counted(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    letters = await buried(store, flow)
    await buried(store, flow, 3, key="b")
    await begun(bulks, filter=BulkFilter(namespace=NAMESPACE, key="a"))
    await work(bulks)
    ended = await action(store)
    assert (ended.state, ended.matched, ended.done, ended.failed) == (BulkState.DONE, LETTERS, LETTERS, 0)
    assert await retried(store) == [letter.due for letter in letters]
    assert {each.key for each in await store.dead_letters.page(NAMESPACE, limit=100)} == {"b"}


async def test_what_dies_again_meanwhile_is_left_alone(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    letters = await buried(store, flow)
    await begun(bulks)
    again = replace(letters[0], died_at=await store.now() + timedelta(minutes=1), death="another")
    await store.dead_letters.add([again])
    await work(bulks)
    assert (await action(store)).done == LETTERS - 1
    assert await store.dead_letters.page(NAMESPACE, limit=100) == [again]


async def test_letters_without_a_schedule_are_told_and_others_go_on(
    store: Store, flow: ScheduleFlow, bulks: BulkFlow
) -> None:
    await buried(store, flow, 120, key="gone")
    await flow.remove(schedule_id(NAMESPACE, "gone"))
    await buried(store, flow)
    await begun(bulks)
    await work(bulks)
    ended = await action(store)
    assert (ended.state, ended.done, ended.failed, len(ended.failures)) == (BulkState.DONE, LETTERS, 120, 100)
    assert "discarded" in ended.failures[0].reason


@pytest.mark.parametrize("page", [1, 2, 5])
async def test_a_page_that_a_dead_worker_left_is_done_by_the_next(
    store: Store, flow: ScheduleFlow, bulks: BulkFlow, broker: MemoryBroker, page: int
) -> None:
    letters = await buried(store, flow)
    await begun(bulks)
    arm(f"bulk.after_page@{page}=raise")
    with pytest.raises(FaultInjected):
        await work(bulks)
    arm("")
    await work(bulks)  # the redelivered message: the hold is the dead worker's still
    assert not (await action(store)).is_over
    await expire(store)
    await broker.purge(BULK_QUEUE)
    assert (await bulks.requeue_lost(timedelta(seconds=30))).retried == 1
    assert await broker.depth(BULK_QUEUE) == 1
    assert (await bulks.requeue_lost(timedelta(seconds=30))).retried == 0
    await work(bulks)
    ended = await action(store)
    assert ended.state is BulkState.DONE
    assert LETTERS - 5 <= ended.done <= LETTERS
    assert await retried(store) == [letter.due for letter in letters]
    assert await store.dead_letters.page(NAMESPACE, limit=100) == []


async def test_many_workers_at_once_do_each_thing_once(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    letters = await buried(store, flow)
    await begun(bulks)
    await asyncio.gather(*(work(bulks) for _ in range(5)))
    assert ((await action(store)).state, (await action(store)).done) == (BulkState.DONE, LETTERS)
    assert await retried(store) == [letter.due for letter in letters]


async def test_a_worker_that_wakes_up_late_moves_nothing(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    await buried(store, flow)
    await begun(bulks)
    late = await bulks.take("an action")
    assert late is not None
    await expire(store)
    await work(bulks)
    ended = await action(store)
    assert not await late.work()
    assert await action(store) == ended


async def test_a_cancelled_action_leaves_the_rest(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    await buried(store, flow)
    await begun(bulks)
    turn = await bulks.take("an action")
    assert turn is not None and await turn.work() and await turn.work()
    assert await bulks.cancel("an action", by="somebody") is not None
    assert await bulks.cancel("an action", by="somebody else") is None
    # The page that was in hand is still counted.
    assert not await turn.work()
    ended = await action(store)
    assert (ended.state, ended.done, ended.cancelled_by) == (BulkState.CANCELLED, 15, "somebody")
    assert len(await store.dead_letters.page(NAMESPACE, limit=100)) == LETTERS - 15
    assert await bulks.take("an action") is None


async def test_a_revoked_maker_does_nothing_more(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    for key in "abcdefgh":
        await accepted(flow, Wanted(NAMESPACE, key, HOURLY))
        await flow.pause(schedule_id(NAMESPACE, key))
    await begun(bulks, BulkAct.RESUME_SCHEDULES)
    turn = await bulks.take("an action")
    assert turn is not None and await turn.work()
    await store.tokens.remove(TOKEN.id)
    assert not await turn.work()
    ended = await action(store)
    assert (ended.state, ended.done) == (BulkState.FAILED, 5)
    assert "may not do this any more" in ended.failure
    assert len(await store.schedules.page(NAMESPACE, state=ScheduleState.PAUSED, limit=100)) == 3


async def test_schedules_are_paused_resumed_and_deleted(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    for n in range(12):
        await accepted(flow, Wanted(NAMESPACE, f"{'ab'[n % 2]}{n:02}", HOURLY))
    chosen = BulkFilter(namespace=NAMESPACE, prefix="a")
    for act, active in (
        (BulkAct.PAUSE_SCHEDULES, 6), (BulkAct.RESUME_SCHEDULES, 12), (BulkAct.DELETE_SCHEDULES, 6),
    ):  # fmt: skip
        assert (await begun(bulks, act, chosen)).matched == 6
        await accepted(flow, Wanted(NAMESPACE, "a-later", HOURLY))
        await work(bulks)
        assert (await action(store)).done == 6
        await flow.remove(schedule_id(NAMESPACE, "a-later"))
        await store._database["bulk_actions"].delete_many({})
        found = await store.schedules.page(NAMESPACE, state=ScheduleState.ACTIVE, limit=100)
        assert len(found) == active


async def test_a_turn_ends_after_its_time_and_tells_workers_of_the_rest(
    store: Store, flow: ScheduleFlow, bulks: BulkFlow, broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buried(store, flow)
    await begun(bulks)
    monkeypatch.setattr(bulk, "MESSAGE_SECONDS", 0.0)
    await work(bulks)
    assert ((await action(store)).done, await broker.depth(BULK_QUEUE)) == (5, 2)
    await work(bulks)
    assert (await action(store)).done == 10


async def test_a_worker_that_stops_leaves_the_rest_to_others(
    store: Store, flow: ScheduleFlow, bulks: BulkFlow, broker: MemoryBroker
) -> None:
    await buried(store, flow)
    await begun(bulks)
    stopping = BulkRunner(bulks)
    stopping.stop()
    await stopping.run(RunBulkAction(action_id="an action"))
    assert ((await action(store)).done, await broker.depth(BULK_QUEUE)) == (5, 2)
    await work(bulks)
    assert (await action(store)).state is BulkState.DONE


async def test_a_server_that_is_away_costs_no_hold(
    store: Store, flow: ScheduleFlow, bulks: BulkFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buried(store, flow)
    await begun(bulks)
    turn = await bulks.take("an action")
    assert turn is not None and await turn.work()

    async def be_away(action: BulkAction, *, until: float) -> None:
        raise Unavailable("the store is away")

    with monkeypatch.context() as away:
        away.setattr(bulks, "do_page", be_away)
        with pytest.raises(Unavailable):
            await turn.work()
    await work(bulks)
    assert ((await action(store)).state, (await action(store)).done) == (BulkState.DONE, LETTERS)


async def test_a_fault_of_ours_ends_the_action(store: Store, flow: ScheduleFlow, bulks: BulkFlow) -> None:
    await begun(bulks)
    await BulkRunner(bulks).give_up(RunBulkAction(action_id="an action"), "KeyError: 'x'")
    ended = await action(store)
    assert (ended.state, ended.failure) == (BulkState.FAILED, "KeyError: 'x'")


async def test_a_fault_in_a_page_lets_the_action_be_given_up(
    store: Store, flow: ScheduleFlow, bulks: BulkFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buried(store, flow)
    await begun(bulks)

    async def fail(action: BulkAction, *, until: float) -> None:
        raise KeyError("x")

    runner = BulkRunner(bulks)
    with monkeypatch.context() as broken:
        broken.setattr(bulks, "do_page", fail)
        with pytest.raises(KeyError):
            await runner.run(RunBulkAction(action_id="an action"))
    await runner.give_up(RunBulkAction(action_id="an action"), "KeyError: 'x'")
    assert (await action(store)).state is BulkState.FAILED


async def test_a_worker_that_was_frozen_does_nothing_more(
    store: Store, flow: ScheduleFlow, bulks: BulkFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buried(store, flow)
    await begun(bulks)
    monkeypatch.setattr(bulk, "_TRUSTED_SHARE", -1.0)
    frozen = await bulks.take("an action")
    assert frozen is not None
    with pytest.raises(Unavailable):
        await frozen.work()
    assert ((await action(store)).done, len(await store.dead_letters.page(NAMESPACE, limit=100))) == (0, LETTERS)
