"""Schedules on real servers, as their users see them."""

import asyncio
import itertools
import os
import sys
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from carillon.wire.clock import Retry
from shared.clock.rules.occurrences import once
from shared.clock.rules.outcomes import Outcome, OutcomeResult
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import ScheduleState
from shared.clock.schedules import Accepted, Wanted
from tests.e2e.clocks import NAMESPACE, declared, is_retried, receiving, scheduled
from tests.e2e.house import House
from tests.e2e.test_first_steps import steps_of
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

AHEAD, HOUR = datetime(2200, 1, 1, tzinfo=UTC), timedelta(hours=1)


@pytest.mark.proof
async def test_each_instant_comes_once_and_none_early(house: House) -> None:
    await house.start("scheduler")
    async with receiving(house, "users.queue") as receiver:
        accepted = await scheduled(house, "training", -60, 4, 4.5, 5)
        await receiver.got(3)
        # Nothing of it can follow what is noted as fired.
        outcomes = await until(partial(all_outcomes, house, accepted, 3), "three outcomes")
    past, *ahead = accepted.schedule.definition.instants
    assert accepted.skipped == (past,)
    assert sorted(each.due for each in receiver.all) == ahead
    assert set(receiver.times.values()) == {1}
    assert {each.body for each in receiver.all} == {b'{"id":"42"}'}
    assert all(each.came >= each.due for each in receiver.all)
    assert [(each.result, each.attempt) for each in outcomes] == [(OutcomeResult.FIRED, 1)] * 3
    # By the scheduler's own account of the database's clock.
    assert all(each.late_ms >= 0 and each.at >= each.due for each in outcomes)


async def all_outcomes(house: House, accepted: Accepted, count: int) -> list[Outcome]:
    """The outcomes of a schedule, newest first; none before there are so many."""
    found = await house.servers.store.outcomes.latest(accepted.schedule.owner, 10)
    return found if len(found) >= count else []


async def test_the_consumer_of_the_documentation_rejects_what_failed_and_drops_repeats(
    house: House, tmp_path: Path
) -> None:
    [step] = [step for step in steps_of("docs/moving-from-a-scheduler.md") if step.file]
    works = "    print("
    assert works in step.text
    fails_once = '    if not os.path.exists("failed"):\n        open("failed", "w")\n        raise ValueError\n'
    (tmp_path / step.file).write_text(step.text.replace(works, fails_once + works))
    await declared(house, "training.invitations")
    await house.start("scheduler")
    environment = os.environ | {"RABBITMQ_URL": house.environment["CARILLON_BROKER_URL"]}
    consumer = await asyncio.create_subprocess_exec(
        sys.executable, step.file, cwd=tmp_path, env=environment, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert consumer.stdout is not None
        await scheduled(house, "training", -60, 1, queue="training.invitations")
        said = await asyncio.wait_for(consumer.stdout.readline(), SECONDS)
    finally:
        consumer.kill()
        await consumer.wait()
    assert (said, (tmp_path / "failed").exists()) == (b"remind players of training 42\n", True)


async def test_a_schedule_is_finished_when_nothing_is_left(house: House) -> None:
    await house.start("scheduler", CARILLON_SCHEDULER_SWEEP_SECONDS="0.5")
    async with receiving(house, "users.queue") as receiver:
        accepted = await scheduled(house, "short", 2)
        await receiver.got(1)
    schedule, store = accepted.schedule, house.servers.store

    async def is_done() -> bool:
        return not await store.occurrences.with_any([schedule.owner])

    async def is_finished() -> bool:
        found = await store.schedules.get(schedule.id)
        return found is not None and found.state is ScheduleState.FINISHED

    await until(is_done, "nothing to be left of it")
    # Rather than wait until its last instant is long past.
    await store.schedules.sweep_again([schedule.id], before=AHEAD, at=await house.servers.time.now() - HOUR)
    await until(is_finished, "the schedule to be finished")


async def test_a_series_fires_at_every_instant_and_ends_by_its_count(house: House) -> None:
    await house.start("scheduler")
    now = await house.servers.time.now()
    async with receiving(house, "users.queue") as receiver:
        accepted = await scheduled(house, "beat", recurrence=Every(1, now), max_occurrences=4)
        await receiver.got(4)

        async def is_over() -> bool:
            return not await house.servers.store.occurrences.find_upcoming(accepted.schedule.owner, 1)

        await until(is_over, "the series to end")
    dues = [each.due for each in receiver.all]
    assert [b - a for a, b in itertools.pairwise(dues)] == [timedelta(seconds=1)] * 3
    assert set(receiver.times.values()) == {1}


async def test_pause_holds_what_is_pending_and_resume_lets_it_go(house: House) -> None:
    """What a scheduler has in its hands when it is paused is held as well: tests/chaos/test_clock_taken_back.py."""
    async with receiving(house, "users.queue") as receiver:
        accepted = await scheduled(house, "held", 2, 2.5)
        assert await house.schedules.pause(accepted.schedule.id)
        await house.start("scheduler")
        await scheduled(house, "other", 3)
        await receiver.got(1)
        assert {each.key for each in receiver.all} == {"other"}
        assert await house.schedules.resume(accepted.schedule.id)
        await receiver.got(3)
    assert set(receiver.times.values()) == {1}


async def test_what_is_removed_or_replaced_does_not_fire(house: House) -> None:
    await house.start("scheduler")
    async with receiving(house, "users.queue") as receiver:
        gone, old = [await scheduled(house, key, 5) for key in ("gone", "replaced")]
        assert await house.schedules.remove(gone.schedule.id)
        [due] = old.schedule.definition.instants
        tomorrow = replace(old.schedule.definition, instants=(due + timedelta(days=1),))
        await house.schedules.put(Wanted(NAMESPACE, "replaced", tomorrow))
        await scheduled(house, "stays", 5.5)
        await receiver.got(1)
    assert [each.key for each in receiver.all] == ["stays"]


async def test_an_unroutable_message_is_retried_and_then_dead(house: House) -> None:
    await house.start("scheduler")
    policy = Retry(attempts=2, first_delay_seconds=0.2)
    accepted = await scheduled(house, "lost", 2, queue="users.missing", retry=policy)

    async def is_dead() -> bool:
        return bool(await house.servers.store.dead_letters.page(accepted.schedule.namespace, limit=10))

    await until(is_dead, "a dead letter")
    [letter] = await house.servers.store.dead_letters.page(accepted.schedule.namespace, limit=10)
    assert (letter.key, letter.attempts) == ("lost", 2)
    async with receiving(house, "users.missing") as receiver:
        await until(lambda: is_retried(house, letter), "the retry")
        await receiver.got(1)
    assert receiver.all[0].message_id == letter.id


async def test_what_nobody_can_read_does_not_hold_up_its_neighbours(house: House) -> None:
    """They are fired together, as they are due together."""
    accepted = [await scheduled(house, f"good-{n}", 2) for n in range(5)]
    due = accepted[0].schedule.definition.instants[0]
    owners = ("of/an/unknown/kind", "job/x/nonsense", "batch/x/y", "nobody")
    unknown = [once(owner, "g", due, accepted_at=due) for owner in owners]
    await house.servers.store.occurrences.add(unknown)
    await house.start("scheduler")
    async with receiving(house, "users.queue") as receiver:
        await receiver.got(len(accepted))
    assert set(receiver.times.values()) == {1}
    assert await house.servers.store.occurrences.with_any(list(owners)) == set(owners)


async def test_early_is_for_first_attempts_alone(house: House) -> None:
    """Some minutes early: so is no retry, however short its pause."""
    await house.start("scheduler", CARILLON_SCHEDULER_EARLY_SECONDS="600")
    policy = Retry(attempts=2, first_delay_seconds=3, factor=1, cap_seconds=3)
    missing = await scheduled(house, "missing", 300, queue="no.such.queue", retry=policy)
    async with receiving(house, "users.queue") as receiver:
        await scheduled(house, "early", 300)
        await receiver.got(1)
        assert receiver.all[0].came < receiver.all[0].due
    newest, oldest = await until(partial(all_outcomes, house, missing, 2), "the outcomes of both attempts")
    assert newest.at - oldest.at >= timedelta(seconds=2.4)
    assert oldest.at < oldest.due
