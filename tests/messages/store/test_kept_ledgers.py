"""Figures of a job stay the same while its batches and messages go, whoever else writes at the same time."""

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.jobs.rules.jobs import Job
from shared.messages.rules.jobs import MessageCounts
from shared.messages.rules.ledger import RANKS, MessageState, entry_id
from shared.messages.store_kept_ledgers import KeptJob
from shared.store import Store
from tests.messages.store.ended_jobs import EVER, add_job, count_rows, end, left, tell

TOLD = [state for state in RANKS if RANKS[state] > RANKS[MessageState.SENT]]
REASONS = ["hard-bounce", "complaint", "undelivered"]


async def kept(store: Store, job: Job) -> KeptJob:
    [found] = [each for each in await store.kept_ledgers.find_old(EVER, limit=100) if each.job.key == job.key]
    return found


async def forget(store: Store, job: Job, *, rows: int) -> None:
    assert await store.kept_ledgers.begin_forgetting(await kept(store, job), duplicates=3)
    while await store.kept_ledgers.fold_some(job.key, rows=rows):
        pass
    await store.kept_ledgers.end_forgetting(job.key)


async def test_the_figures_are_the_same_before_and_after_each_step(store: Store) -> None:
    job = await add_job(store, [5, 5, 5, 5], unsent=2)
    for row in (0, 1):
        assert await tell(store, entry_id(job.incarnation, 1, row), MessageState.FAILED, "hard-bounce")
    before = await store.message_sums.count(job.key)
    assert (before.planned, before.unsent, before.by_state["sent"], before.reasons) == (28, 8, 18, {"hard-bounce": 2})
    assert await store.kept_ledgers.begin_forgetting(await kept(store, job), duplicates=3)
    steps = []
    while done := await store.kept_ledgers.fold_some(job.key, rows=14):
        assert await store.message_sums.count(job.key) == replace(before, duplicates=3)
        steps.append(done)
    assert steps == [2, 3], "two batches of seven at a time, and the end of the plan"
    await store.kept_ledgers.end_forgetting(job.key)
    assert await store.message_sums.count(job.key) == replace(before, duplicates=3)
    assert set((await left(store, job)).values()) == {0}
    assert await store.kept_ledgers.find_old(EVER, limit=9) == []


async def test_a_batch_goes_however_large_it_is(store: Store) -> None:
    job = await add_job(store, [30])
    before = await store.message_sums.count(job.key)
    await forget(store, job, rows=1)
    assert await store.message_sums.count(job.key) == replace(before, duplicates=3)


async def test_a_job_that_is_taken_up_again_is_not_forgotten(store: Store) -> None:
    job = await add_job(store, [5])
    before = await kept(store, job)
    reopened = await store.reopening.reopen_job(job, [MessageState.FAILED], at=1)
    assert reopened is not None
    assert await store.kept_ledgers.find_old(EVER, limit=9) == []
    assert await store.kept_ledgers.find_unredacted(EVER, limit=9) == []
    assert not await store.kept_ledgers.begin_forgetting(before, duplicates=0)
    assert not await store.kept_ledgers.note_redacted(before, 1)
    await end(store, reopened)
    assert not await store.kept_ledgers.begin_forgetting(before, duplicates=0), "it has ended anew"
    assert await store.kept_ledgers.begin_forgetting(await kept(store, job), duplicates=0)


async def test_a_job_that_is_forgotten_is_not_taken_up_again(store: Store) -> None:
    job = await add_job(store, [5])
    assert await store.kept_ledgers.begin_forgetting(await kept(store, job), duplicates=0)
    assert not await store.kept_ledgers.begin_forgetting(await kept(store, job), duplicates=9), "it has begun"
    assert await store.reopening.reopen_job(job, [MessageState.SENT], at=1) is None
    while await store.kept_ledgers.fold_some(job.key, rows=100):
        pass
    await store.kept_ledgers.end_forgetting(job.key)
    assert await store.reopening.reopen_job(job, [MessageState.SENT], at=1) is None


async def test_other_jobs_keep_theirs(store: Store) -> None:
    job, other = await add_job(store, [3, 3]), await add_job(store, [3])
    young = await store.now() - timedelta(days=1)
    assert await store.kept_ledgers.find_old(young, limit=9) == await store.kept_ledgers.find_unredacted(young, limit=9)
    assert await store.kept_ledgers.find_old(young, limit=9) == []
    before = await store.message_sums.count(other.key)
    await forget(store, job, rows=2)
    assert await store.message_sums.count(other.key) == before
    assert await count_rows(store, other) == {"sent": 3}


@pytest.mark.parametrize("is_whole", [False, True])
async def test_no_count_is_negative_of_a_job_that_is_deleted_meanwhile(store: Store, *, is_whole: bool) -> None:
    """Callbacks are read, and then the batches go which those take from."""
    job = await add_job(store, [5])
    assert await tell(store, entry_id(job.incarnation, 0, 0), MessageState.FAILED, "hard-bounce")
    batches = store.message_sums._batches

    class Late:
        async def aggregate(self, *args: Any, **session: Any) -> Any:
            assert await store.closed_jobs.begin_removal(job.key)
            while await store.kept_ledgers.remove_some(job.incarnation, limit=100):
                pass
            await store._database["batches"].delete_many({"job_id": job.key})
            if is_whole:
                await store.closed_jobs.remove([job.key])
            store.message_sums._batches = batches
            return await batches.aggregate(*args, **session)

    store.message_sums._batches = Late()  # type: ignore[assignment]
    counts = await store.message_sums.count(job.key)
    assert (counts.planned, counts.unsent, sum(map(abs, counts.by_state.values()))) == (0, 0, 0)


callbacks = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.sampled_from(TOLD), st.sampled_from(REASONS)), max_size=25
)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(early=callbacks, racing=callbacks, rows=st.integers(1, 21))
async def test_sums_are_exact_before_during_and_after_with_callbacks_racing(
    store: Store, early: list[tuple[int, int, MessageState, str]], racing: list[tuple[int, int, MessageState, str]],
    rows: int,
) -> None:  # fmt: skip
    job = await add_job(store, [5, 4, 5, 3], unsent=1)
    states: dict[str, tuple[MessageState, str]] = {}

    async def hear_of(told: tuple[int, int, MessageState, str]) -> None:
        ordinal, row, state, reason = told
        message_id = entry_id(job.incarnation, ordinal, row)
        if await tell(store, message_id, state, reason):
            before = states.get(message_id)
            if before is None or RANKS[before[0]] < RANKS[state]:
                states[message_id] = (state, reason)

    for told in early:
        await hear_of(told)
    watching, seen = True, list[MessageCounts]()

    async def watch() -> None:
        while watching:
            seen.append(await store.message_sums.count(job.key))

    watcher = asyncio.create_task(watch())
    await asyncio.gather(forget(store, job, rows=rows), *map(hear_of, racing))
    watching = False
    await watcher
    after = await store.message_sums.count(job.key)
    assert set((await left(store, job)).values()) == {0}
    expected = Counter(state.value for state, _ in states.values())
    expected["sent"] = 17 - expected.total()
    assert +Counter(after.by_state) == +expected
    assert after.reasons == Counter(r for s, r in states.values() if RANKS[s] > RANKS[MessageState.READ])
    for counts in seen:
        assert (counts.planned, counts.unsent, sum(counts.by_state.values())) == (21, 4, 17), "at any moment"
