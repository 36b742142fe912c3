"""3,000 dead letters are retried by one action while workers die: none is lost, and none comes twice. A cancelled
action leaves what it had not come to."""

import signal
from datetime import UTC, datetime, timedelta

import pytest

from shared.accounts.rules.callers import Token, token_namespace
from shared.clock.rules.callbacks import RabbitCallback
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import Definition
from shared.clock.schedules import Accepted, Wanted
from shared.console.rules.bulk_actions import BulkAct, BulkAction, BulkFilter, BulkState
from tests.e2e.clocks import receiving
from tests.e2e.house import House
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

LETTERS = 3_000
QUEUE = "users.queue"
TOKEN = Token(id="0190b5a2-0000-7000-8000-000000000001", name="console", digest="d")
NAMESPACE = token_namespace(TOKEN.id)
AHEAD = datetime(2100, 1, 1, tzinfo=UTC)
DIED = datetime(2026, 1, 1, tzinfo=UTC)
UPKEEP = {"CARILLON_SCHEDULER_RETENTION_SECONDS": "0.5", "CARILLON_SCHEDULER_STALE_SECONDS": "1"}


async def buried(house: House) -> None:
    await house.servers.store.tokens.add(TOKEN)
    definition = Definition(callback=RabbitCallback(queue=QUEUE, payload="{}"), recurrence=Every(3_600, AHEAD))
    [made] = await house.schedules.accept([Wanted(NAMESPACE, "orders", definition)])
    assert isinstance(made, Accepted)
    schedule = made.schedule
    await house.servers.store.dead_letters.add([
        DeadLetter(
            id=f"{n:05}", death=f"{n:05}", namespace=NAMESPACE, key=schedule.key, schedule_id=schedule.id,
            generation=schedule.generation, due=DIED + timedelta(seconds=n), died_at=DIED + timedelta(seconds=n // 7),
            attempts=3, error="refused",
        )
        for n in range(LETTERS)
    ])  # fmt: skip


async def begun(house: House) -> None:
    bulk = house.rooms.console.bulk
    now, filter = await bulk.now(), BulkFilter(namespace=NAMESPACE)
    matched = await bulk.count(BulkAct.RETRY_LETTERS, filter)
    assert matched == LETTERS
    await bulk.start(
        BulkAction(
            id="retry", act=BulkAct.RETRY_LETTERS, filter=filter, reason="chaos", matched=matched,
            created_by="console", created_at=now, created_ns=0, namespace=NAMESPACE, token_id=TOKEN.id,
            leased_until=now,
        )
    )  # fmt: skip


async def action(house: House) -> BulkAction:
    found = await house.servers.store.bulk_actions.get("retry")
    assert found is not None
    return found


async def test_workers_die_while_dead_letters_are_retried(house: House) -> None:
    await house.start("scheduler", **UPKEEP)
    doomed = [await house.start("worker", fault=f"bulk.after_page@{page}=kill") for page in (2, 3)]
    async with receiving(house, QUEUE) as receiver:
        await buried(house)
        await begun(house)
        for worker in doomed:
            assert await worker.gone() == -signal.SIGKILL
        await house.start("worker")
        await house.start("worker")

        async def is_over() -> bool:
            return (await action(house)).is_over

        await until(is_over, "the action to end")
        await until(lambda: len(receiver.all) >= LETTERS, "all instants to come")
    ended = await action(house)
    assert ended.state is BulkState.DONE
    # What the dead had done of their pages is not counted.
    assert LETTERS - 2 * 500 <= ended.done <= LETTERS
    assert {each.due for each in receiver.all} == {DIED + timedelta(seconds=n) for n in range(LETTERS)}
    assert len(receiver.all) == LETTERS
    assert await house.servers.store.dead_letters.page(NAMESPACE, limit=1) == []


@pytest.mark.slow
async def test_a_cancelled_action_leaves_what_it_had_not_come_to(house: House) -> None:
    await house.start("scheduler", **UPKEEP)
    async with receiving(house, QUEUE) as receiver:
        await buried(house)
        worker = await house.start("worker", fault="bulk.after_page@3=stop")
        await begun(house)
        await worker.reached("bulk.after_page")
        assert await house.rooms.console.bulk.cancel("retry", by="console") is not None
        worker.send(signal.SIGCONT)

        async def is_counted() -> bool:
            return (await action(house)).done == 1_500

        await until(is_counted, "the page in hand to be counted")
        await until(lambda: len(receiver.all) >= 1_500, "the retried instants to come")
        left = await house.servers.store.dead_letters.count(NAMESPACE, before=AHEAD, most=LETTERS)
    assert (len({each.due for each in receiver.all}), len(receiver.all), left) == (1_500, 1_500, LETTERS - 1_500)
    assert (await action(house)).state is BulkState.CANCELLED
