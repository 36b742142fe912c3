"""Batches in the database: inserted in order, moved by compare-and-set, counted exactly."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange
from shared.jobs.rules.batches import SLOTS, TRANSITIONS, Batch, BatchPart, BatchStatus, Receipt, Totals
from shared.jobs.store_batches import PlanEnd
from shared.store import Store
from tests.commands import count_commands

pytestmark = pytest.mark.native

_jobs = itertools.count()


def a_plan(count: int, size: int = 10) -> list[Batch]:
    job_id = f"job-{next(_jobs)}"
    return [Batch(job_id=job_id, ordinal=n, range=KeyRange(n * size, n * size + size), size=size) for n in range(count)]


async def test_a_plan_is_inserted_in_order_and_once(store: Store) -> None:
    plan = a_plan(5)
    job_id = plan[0].job_id
    assert await store.batches.last(job_id) is None
    assert await store.batches.add_page(plan[:3])
    assert await store.batches.last(job_id) == plan[2]
    assert not await store.batches.add_page(plan[2:])
    assert await store.batches.last(job_id) == plan[2]
    assert await store.batches.add_page(plan[3:])
    assert not await store.batches.add_end(job_id, 4)
    assert await store.batches.add_end(job_id, 5)
    assert not await store.batches.add_page([replace(plan[4], ordinal=5)])
    assert await store.batches.last(job_id) == PlanEnd(5)
    assert [await store.batches.get(job_id, n) for n in range(6)] == [*plan, None]


async def test_two_planners_make_one_plan(store: Store) -> None:
    plan = a_plan(40)
    job_id = plan[0].job_id

    async def planner() -> None:
        while not isinstance(last := await store.batches.last(job_id), PlanEnd):
            begin = 0 if last is None else last.ordinal + 1
            if begin < len(plan):
                await store.batches.add_page(plan[begin : begin + 7])
            else:
                await store.batches.add_end(job_id, begin)

    await asyncio.gather(*(planner() for _ in range(4)))
    assert [await store.batches.get(job_id, n) for n in range(41)] == [*plan, None]


async def test_of_many_who_take_a_batch_one_wins(store: Store) -> None:
    (batch,) = a_plan(1)
    await store.batches.add_page([batch])
    queued = await store.batches.queue(batch.job_id, 0)
    assert queued is not None
    assert await store.batches.queue(batch.job_id, 0) is None
    taken = await asyncio.gather(*(store.batches.take(queued, owner=f"lane-{n}") for n in range(8)))
    (winner,) = [batch for batch in taken if batch is not None]
    assert (winner.status, winner.attempts, winner.turn) == (BatchStatus.SENDING, 1, 1)
    assert winner.taken_at is not None
    for loser in range(8):
        owner = f"lane-{loser}"
        settled = await store.batches.settle(replace(winner, owner=owner), to=BatchStatus.SENT, receipt=Receipt(10))
        assert (settled is not None) is (owner == winner.owner)


async def test_a_turn_that_has_passed_moves_nothing(store: Store) -> None:
    (batch,) = a_plan(1)
    await store.batches.add_page([batch])
    queued = await store.batches.queue(batch.job_id, 0)
    assert queued is not None
    renewed = await store.batches.requeue(queued)
    assert renewed is not None
    assert renewed.turn == 2
    for move in (
        store.batches.take(queued, owner="lane"),
        store.batches.put_back(queued),
        store.batches.drop(queued),
        store.batches.fail(queued, receipt=Receipt(failed=10)),
        store.batches.requeue(queued),
    ):
        assert await move is None
    assert await store.batches.get(batch.job_id, 0) == renewed


commands = st.sampled_from(["queue", "requeue", "put_back", "take", "disown", "advance", "settle", "fail", "drop"])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(commands, max_size=14))
async def test_any_sequence_of_moves_keeps_to_the_table(store: Store, sequence: list[str]) -> None:
    (batch,) = a_plan(1)
    await store.batches.add_page([batch])
    for number, command in enumerate(sequence):
        moved = await move(store, batch, f"lane-{number}")[command]()
        now = await store.batches.get(batch.job_id, 0)
        assert now is not None
        if moved is None:
            assert now == batch
        else:
            assert now == moved
            assert now.status in TRANSITIONS[batch.status] or (command == "requeue" and now.status is batch.status)
            assert now.turn == batch.turn + (command in {"queue", "requeue"})
            assert bool(now.owner) or now.status is not BatchStatus.SENDING
        batch = now


def move(store: Store, batch: Batch, lane: str) -> dict[str, Callable[[], Awaitable[Batch | None]]]:
    batches = store.batches
    return {
        "queue": lambda: batches.queue(batch.job_id, 0),
        "requeue": lambda: batches.requeue(batch),
        "put_back": lambda: batches.put_back(batch),
        "take": lambda: batches.take(batch, owner=lane),
        "disown": lambda: batches.disown(batch),
        "advance": lambda: batches.advance(batch, BatchPart(Receipt(1), batch.parts + 1, next=1), halvings=0),
        "settle": lambda: batches.settle(batch, to=BatchStatus.SENT, receipt=Receipt(10)),
        "fail": lambda: batches.fail(batch, receipt=Receipt(failed=10)),
        "drop": lambda: batches.drop(batch),
    }


async def test_a_part_that_is_out_leaves_the_rest_to_be_sent(store: Store) -> None:
    (batch,) = a_plan(1)
    await store.batches.add_page([batch])
    queued = await store.batches.queue(batch.job_id, 0)
    assert queued is not None
    taken = await store.batches.take(queued, owner="lane")
    assert taken is not None
    part = BatchPart(Receipt(sent=4, held_out=1, locales={"en": 4}), 1, next=7)

    advanced = await store.batches.advance(taken, part, halvings=3)

    assert advanced is not None
    assert (advanced.status, advanced.turn, advanced.owner) == (BatchStatus.QUEUED, 1, "")
    assert (advanced.parts, advanced.next, advanced.receipt) == (1, 7, part.receipt)
    assert (advanced.halvings, advanced.holders) == (3, ("lane",))
    again = await store.batches.take(advanced, owner="lane")
    assert again is not None
    # Whoever slept since the first part, of the same lane, changes nothing.
    assert await store.batches.advance(taken, part, halvings=0) is None
    assert await store.batches.disown(taken) is None
    assert await store.batches.settle(taken, to=BatchStatus.SENT, receipt=part.receipt) is None
    settled = await store.batches.settle(again, to=BatchStatus.SENT, receipt=Receipt(sent=8, held_out=2))
    assert settled is not None
    assert settled.holders == ("lane", "lane/1")
    totals = (await store.batch_sums.totals([batch.job_id]))[batch.job_id]
    assert (totals.sent, totals.held_out, totals.settled) == (8, 2, 1)


async def test_takes_that_send_nothing_are_counted_and_make_parts_smaller(store: Store) -> None:
    (batch,) = a_plan(1)
    await store.batches.add_page([batch])
    standing = await store.batches.queue(batch.job_id, 0)
    halvings = []
    for number in range(4):
        assert standing is not None
        taken = await store.batches.take(standing, owner=f"lane-{number}")
        assert taken is not None
        standing = await store.batches.disown(taken)
        assert standing is not None
        assert standing.fruitless == number + 1
        halvings.append(standing.halvings)
    assert halvings == [0, 2, 4, 6]


async def test_heads_are_the_lowest_unsettled_of_each_chain(store: Store) -> None:
    plan = a_plan(2 * SLOTS + 3)
    job_id = plan[0].job_id
    await store.batches.add_page(plan)
    await store.batches.add_end(job_id, len(plan))
    assert [(head.ordinal, head.planned) for head in await store.batches.heads(job_id)] == [
        (n, True) for n in range(SLOTS)
    ]
    for ordinal in (0, 1):
        queued = await store.batches.queue(job_id, ordinal)
        assert queued is not None
        taken = await store.batches.take(queued, owner="lane")
        assert taken is not None
        if ordinal == 0:
            await store.batches.settle(taken, to=BatchStatus.SENT, receipt=Receipt(10))
    heads = {head.ordinal: head.planned for head in await store.batches.heads(job_id)}
    assert (heads[1], heads[SLOTS]) == (False, True)
    assert 0 not in heads
    assert await store.batches.find_settled(job_id, [0, 1, 99]) == {0}


async def test_totals_and_receipts_are_exact(store: Store) -> None:
    plan = a_plan(3)
    job_id = plan[0].job_id
    await store.batches.add_page(plan)
    receipt = Receipt(sent=7, failed=1, skipped=2, reasons={"no.token": 2, "$x": 1}, locales={"en": 7})
    for ordinal in (0, 1):
        queued = await store.batches.queue(job_id, ordinal)
        assert queued is not None
        taken = await store.batches.take(queued, owner="lane")
        assert taken is not None
        await store.batches.settle(taken, to=BatchStatus.SENT, receipt=receipt)
    assert await store.batch_sums.totals([job_id, "nothing"]) == {job_id: Totals(3, 2, 30, 14, 2, 4, 0)}
    assert [each.receipt async for each in store.batch_sums.outcomes(job_id)] == [receipt, receipt]
    assert await store.batches.has_unsettled(job_id)
    assert await store.batches.drop_unsent(job_id) == 1
    assert not await store.batches.has_unsettled(job_id)
    assert await store.batches.drop_unsent(job_id) == 0


async def test_age_is_told_by_the_databases_clock(store: Store) -> None:
    plan = a_plan(2)
    job_id = plan[0].job_id
    await store.batches.add_page(plan)
    before = await store.now()
    queued = await store.batches.queue(job_id, 0)
    assert queued is not None
    assert queued.changed_at is not None
    assert before - timedelta(seconds=1) <= queued.changed_at <= await store.now() + timedelta(seconds=1)


async def test_what_is_on_its_way_is_queued_or_owned(store: Store) -> None:
    plan = a_plan(4)
    job_id = plan[0].job_id
    await store.batches.add_page(plan)
    queued, taken, sent = [await store.batches.queue(job_id, ordinal) for ordinal in range(3)]
    assert queued is not None
    assert taken is not None
    assert sent is not None
    owned = await store.batches.take(taken, owner="lane")
    settled = await store.batches.take(sent, owner="other")
    assert settled is not None
    await store.batches.settle(settled, to=BatchStatus.SENT, receipt=Receipt(sent=10))
    found = await store.batches.find_on_their_way(job_id)
    assert found == {BatchStatus.QUEUED: [queued], BatchStatus.SENDING: [owned]}


async def test_sums_are_of_one_moment(ready_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a batch that moves to a place that is yet to be looked at counts twice."""
    commands = count_commands(monkeypatch)
    store = Store.open(ready_database)
    await store.batch_sums.totals(["job"])
    await store.batch_sums.counts("job")
    asked = [sent["readConcern"] for sent in commands.sent if "aggregate" in sent]
    assert asked == [{"level": "snapshot"}] * 2
    await store.close()
