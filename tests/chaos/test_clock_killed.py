"""SIGKILL and SIGSTOP at every line of the clock where they matter, and an API that dies half-way into a schedule."""

import signal
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

import aio_pika
import pytest

from carillon.wire.clock import Retry
from services.embedded.processes import free_port
from shared.clock.rules.instants import due_instants
from shared.clock.rules.outcomes import OutcomeResult
from shared.clock.rules.recurrence import Every
from shared.clock.rules.schedules import schedule_id
from shared.clock.schedules import Accepted
from shared.core.instants import format_instant
from tests.e2e.clocks import Receiver, receiving, scheduled
from tests.e2e.house import House, Process
from tests.e2e.test_over_http import Customer
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

QUEUE = "users.queue"
ADMIN = "admin@example.com"
TICK = {"CARILLON_SCHEDULER_TICK_SECONDS": "0.5"}
# Half of so short a lease is trusted: longer than a confirm takes on a busy machine.
QUICK = {"CARILLON_SCHEDULER_LEASE_SECONDS": "6", **TICK}
_END = "the-end"
TRAINING = schedule_id(f"user:{ADMIN}", "training")

Instants = set[tuple[str, datetime]]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("point", "most"),
    [
        ("clock.after_publish", 2),
        pytest.param("clock.after_claim", 1, marks=pytest.mark.slow),
        pytest.param("clock.before_publish", 1, marks=pytest.mark.slow),
    ],
)
async def test_a_scheduler_dies_with_instants_in_its_hands(house: House, point: str, most: int) -> None:
    """Another one fires what the first held; again only what was out and not completed."""
    doomed = await house.start("scheduler", fault=f"{point}=kill", **TICK)
    async with receiving(house, QUEUE) as receiver:
        all_ = await lists(house)
        assert await doomed.gone() == -signal.SIGKILL
        await end_leases(house)
        other = await house.start("scheduler", **TICK)
        await settled(house, receiver, all_, [other])
    check(receiver, all_)
    assert max(receiver.times.values()) == most
    assert await fired(house, all_) == sorted(expected(all_))


async def test_a_scheduler_dies_after_a_series_has_moved(house: House) -> None:
    doomed = await house.start("scheduler", fault="clock.after_move@2=kill", **QUICK)
    other = await house.start("scheduler", **QUICK)
    async with receiving(house, QUEUE) as receiver:
        all_ = await series(house)
        assert await doomed.gone() == -signal.SIGKILL
        await settled(house, receiver, all_, [other])
    check(receiver, all_)
    assert max(receiver.times.values()) <= 2
    assert await fired(house, all_) == sorted(expected(all_))


async def test_a_scheduler_dies_between_a_copy_and_its_series(house: House) -> None:
    """The queue is missing until then: each instant of each series comes, whether by its copy or by the series."""
    doomed = await house.start("scheduler", fault="clock.after_copy=kill", **QUICK)
    other = await house.start("scheduler", **QUICK)
    all_ = await series(house, retry=Retry(attempts=20, first_delay_seconds=0.5, factor=1.0))
    assert await doomed.gone() == -signal.SIGKILL
    async with receiving(house, QUEUE) as receiver:
        await settled(house, receiver, all_, [other])
    check(receiver, all_)
    assert max(receiver.times.values()) <= 2
    assert set(await fired(house, all_)) == expected(all_)
    assert not await house.servers.store.dead_letters.page(all_[0].schedule.namespace, limit=10)


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("clock.after_publish", 2),
        pytest.param("clock.before_publish", 2, marks=pytest.mark.slow),
        pytest.param("clock.after_claim", 1, marks=pytest.mark.slow),
        pytest.param("clock.after_look", 1, marks=pytest.mark.slow),
    ],
)
async def test_a_sleeper_wakes_up_after_another_has_fired(house: House, point: str, times: int) -> None:
    """It may repeat what it had in its hands; it neither completes nor moves anything."""
    sleeper = await house.start("scheduler", fault=f"{point}=stop", **QUICK)
    other = await house.start("scheduler", **QUICK)
    async with receiving(house, QUEUE) as receiver:
        all_ = [*await lists(house), *await series(house)]
        await sleeper.reached(point)
        await gone(house, all_)
        sleeper.send(signal.SIGCONT)
        await settled(house, receiver, all_, [sleeper, other])
    check(receiver, all_)
    assert max(receiver.times.values()) == times
    assert await fired(house, all_) == sorted(expected(all_))


async def test_a_sleeper_wakes_up_while_its_series_still_runs(house: House) -> None:
    sleeper = await house.start("scheduler", fault="clock.before_publish=stop", **QUICK)
    other = await house.start("scheduler", **QUICK)
    async with receiving(house, QUEUE) as receiver:
        all_ = await series(house, max_occurrences=9)
        await sleeper.reached("clock.before_publish")
        await until(lambda: len(receiver.instants) >= len(expected(all_)) * 2 // 3, "the other one to overtake")
        sleeper.send(signal.SIGCONT)
        await settled(house, receiver, all_, [sleeper, other])
    check(receiver, all_)
    assert max(receiver.times.values()) <= 2
    assert await fired(house, all_) == sorted(expected(all_))


@pytest.mark.parametrize(
    ("point", "status"),
    [pytest.param("schedule.after_occurrences", 201, marks=pytest.mark.slow), ("schedule.after_insert", 200)],
)
async def test_an_api_dies_half_way_and_the_request_is_repeated(house: House, point: str, status: int) -> None:
    """While a scheduler meets what the dead one has left: that never fires, and nothing comes twice."""
    scheduler = await house.start("scheduler", **QUICK)
    doomed, other = await an_api(house, fault=f"{point}=kill"), await an_api(house)
    body = await a_request(house, 8, 9)
    await dies_of(house, doomed, body)
    answered, shown = await other.call("POST", "/schedules", body)
    assert answered == status, shown
    assert shown["schedules"] == body["schedules"]
    async with receiving(house, QUEUE) as receiver:
        await all_of_it(house, receiver, scheduler)
    assert sorted(format_instant(each.due) for each in receiver.all) == body["schedules"]


async def test_what_an_api_leaves_of_a_schedule_never_fires(house: House) -> None:
    """Nobody repeats the request: what was stored waits for a schedule that does not come."""
    scheduler = await house.start("scheduler", **QUICK)
    async with receiving(house, QUEUE) as receiver:
        doomed = await an_api(house, fault="schedule.after_occurrences=kill")
        await dies_of(house, doomed, await a_request(house, 3, 4))
        after = await scheduled(house, "after", 5, queue=QUEUE)
        await settled(house, receiver, [after], [scheduler])
    check(receiver, [after])


async def test_an_api_dies_half_way_into_a_replacement(house: House) -> None:
    """Nothing of the old content fires any more, and all of the new one does."""
    healthy, doomed = await an_api(house), await an_api(house, fault="schedule.after_replace=kill")
    scheduler = await house.start("scheduler", **QUICK)
    first, second = await a_request(house, 9, 10), await a_request(house, 8, 11, payload={"id": "new"})
    async with receiving(house, QUEUE) as receiver:
        assert (await healthy.call("POST", "/schedules", first))[0] == 201
        await dies_of(house, doomed, second, method="PUT", path="/schedules/training")
        await all_of_it(house, receiver, scheduler)
    assert sorted(format_instant(each.due) for each in receiver.all) == second["schedules"]
    assert {each.body for each in receiver.all} == {b'{"id": "new"}'}


async def test_an_api_dies_half_way_into_a_pause(house: House) -> None:
    """Its instants are there as if nothing were; the clock sees the pause when they come due."""
    healthy, doomed = await an_api(house), await an_api(house, fault="schedule.after_pause=kill")
    scheduler = await house.start("scheduler", **QUICK)
    body = await a_request(house, 8, 9)
    async with receiving(house, QUEUE) as receiver:
        assert (await healthy.call("POST", "/schedules", body))[0] == 201
        await dies_of(house, doomed, None, path="/schedules/training/pause")
        await settled(house, receiver, [await scheduled(house, "after", 10, queue=QUEUE)], [scheduler])
        assert {each.key for each in receiver.all} == {"after"}
        again = await house.start("scheduler", **QUICK)
        assert (await healthy.call("POST", "/schedules/training/resume"))[0] == 200
        await all_of_it(house, receiver, again)
    assert sorted(format_instant(each.due) for each in receiver.all if each.key == "training") == body["schedules"]


async def test_an_api_dies_half_way_into_a_resume(house: House) -> None:
    """Its instants stay held back until the sweep meets them."""
    healthy, doomed = await an_api(house), await an_api(house, fault="schedule.after_resume=kill")
    scheduler = await house.start("scheduler", CARILLON_SCHEDULER_SWEEP_SECONDS="0.1", **QUICK)
    body = await a_request(house, 7, 8)
    async with receiving(house, QUEUE) as receiver:
        assert (await healthy.call("POST", "/schedules", body))[0] == 201
        assert (await healthy.call("POST", "/schedules/training/pause"))[0] == 200
        await dies_of(house, doomed, None, path="/schedules/training/resume")
        await all_of_it(house, receiver, scheduler)
    assert sorted(format_instant(each.due) for each in receiver.all) == body["schedules"]


async def test_an_api_dies_half_way_into_a_removal(house: House) -> None:
    healthy, doomed = await an_api(house), await an_api(house, fault="schedule.after_remove=kill")
    scheduler = await house.start("scheduler", **QUICK)
    async with receiving(house, QUEUE) as receiver:
        assert (await healthy.call("POST", "/schedules", await a_request(house, 8, 9)))[0] == 201
        await dies_of(house, doomed, None, method="DELETE", path="/schedules/training")
        after = await scheduled(house, "after", 10, queue=QUEUE)
        await settled(house, receiver, [after], [scheduler])
    check(receiver, [after])


async def end_leases(house: House) -> None:
    """Rather than wait until those of the dead scheduler are over."""
    held = {"token": {"$ne": ""}}
    ended = {"$set": {"visible_at": await house.servers.time.now()}}
    await house.servers.store.occurrences._occurrences.update_many(held, ended)


async def lists(house: House) -> list[Accepted]:
    """Enough of them that two schedulers both have some at every moment."""
    return [await scheduled(house, f"list-{n}", *(3 + n / 40 + 0.5 * k for k in range(6))) for n in range(20)]


async def series(house: House, *, max_occurrences: int = 5, **fields: Any) -> list[Accepted]:
    now = await house.servers.time.now()
    return [
        await scheduled(
            house,
            f"series-{n}",
            recurrence=Every(1, now + timedelta(seconds=1, milliseconds=50 * n)),
            max_occurrences=max_occurrences,
            **fields,
        )
        for n in range(16)
    ]


def expected(all_: Iterable[Accepted]) -> Instants:
    """Every key and instant, read from the definitions."""
    return {
        (each.schedule.key, due)
        for each in all_
        for due in islice(
            due_instants(each.schedule.definition, each.schedule.key, each.schedule.accepted_at),
            each.schedule.definition.max_occurrences,
        )
    }


def check(receiver: Receiver, all_: Sequence[Accepted]) -> None:
    """Nothing is lost and nothing is there that was not asked for; each instant has one message id."""
    assert set(receiver.instants) == expected(all_)
    assert set(receiver.instants.values()) == {1}


async def fired(house: House, all_: Sequence[Accepted]) -> list[tuple[str, datetime]]:
    """What is told of it."""
    told: list[tuple[str, datetime]] = []
    for each in all_:
        outcomes = await house.servers.store.outcomes.latest(each.schedule.owner, 1_000)
        told += [(each.schedule.key, outcome.due) for outcome in outcomes if outcome.result is OutcomeResult.FIRED]
    return sorted(told)


async def gone(house: House, all_: Sequence[Accepted], *, seconds: float = SECONDS) -> None:
    """Wait until nothing is pending."""
    owners = [each.schedule.owner for each in all_]

    async def nothing_left() -> bool:
        return not await house.servers.store.occurrences.with_any(owners)

    try:
        await until(nothing_left, "all instants to be dealt with", seconds)
    except TimeoutError:
        left = [each for owner in owners for each in await house.servers.store.occurrences.find_upcoming(owner, 10)]
        raise AssertionError(f"{left}\n{house.logs()}") from None


async def settled(house: House, receiver: Receiver, all_: Sequence[Accepted], running: Sequence[Process]) -> None:
    """Wait until nothing is pending, the schedulers have ended, and all that they sent has come."""
    await gone(house, all_)
    for process in running:
        process.send(signal.SIGTERM)
    for process in running:
        assert await process.gone() == 0, house.logs()
    await drained(house, receiver)


async def drained(house: House, receiver: Receiver, queue: str = QUEUE) -> None:
    """Wait for a last message of our own, behind everything else in the queue; it is not counted."""
    connection = await aio_pika.connect(house.environment["CARILLON_BROKER_URL"])
    headers = {"carillon-key": _END, "carillon-due": "2200-01-01T00:00:00Z", "carillon-attempt": "1"}
    async with connection, connection.channel() as channel:
        message = aio_pika.Message(b"", message_id=_END, headers=dict(headers))
        await channel.default_exchange.publish(message, queue)
        await until(lambda: any(each.key == _END for each in receiver.all), "the last message")
    receiver.all = [each for each in receiver.all if each.key != _END]


async def an_api(house: House, fault: str = "") -> Customer:
    port = free_port()
    await house.start("api", fault=fault, CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN=ADMIN)
    return Customer(port)


async def a_request(house: House, *seconds: float, payload: Any = None) -> dict[str, Any]:
    now = await house.servers.time.now()
    return {
        "key": "training",
        "schedules": [format_instant(now + timedelta(seconds=each)) for each in seconds],
        "callback": {"type": "rabbitmq", "data": {"queue": QUEUE, "payload": payload or {"id": "42"}}},
    }


async def dies_of(house: House, doomed: Customer, body: Any, *, method: str = "POST", path: str = "/schedules") -> None:
    """The request to an API that is killed on the way."""
    with pytest.raises(OSError):
        await doomed.call(method, path, body)
    assert await house.servers.store.occurrences.with_any([f"schedule/{TRAINING}"])


async def all_of_it(house: House, receiver: Receiver, scheduler: Process) -> None:
    """Wait until nothing of the present generation is pending."""
    found = await house.servers.store.schedules.get(TRAINING)
    assert found is not None

    async def nothing_left() -> bool:
        left = await house.servers.store.occurrences.find_upcoming(found.owner, 100)
        return all(each.generation != found.generation for each in left)

    await until(nothing_left, "the schedule to have fired")
    scheduler.send(signal.SIGTERM)
    assert await scheduler.gone() == 0, house.logs()
    await drained(house, receiver)
