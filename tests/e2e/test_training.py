"""MyCoach's two scenarios, as its services would write them: reminders around a training, and invitations before it.

Time is compressed: 15 minutes, or half a day, are about half a second. The queue's consumer drops repeats by message
id.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from carillon import AsyncCarillon, Invalid, NotFound, RabbitCallback, Schedule
from services.embedded.processes import free_port
from tests.e2e.clocks import Receiver, receiving
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer

pytestmark = pytest.mark.native

ADMIN = "admin@example.com"
QUEUE = "training.notifications"
MINUTE = timedelta(seconds=0.4 / 15)  # for reminders
HOUR = timedelta(seconds=0.5 / 12)  # for invitations
REMINDED = [*(-minutes for minutes in (90, 75, 60, 45, 30, 15)), *(15 * n for n in range(1, 13))]
INVITED = [-72, -48, -24, -6]
HAND_OVER = timedelta(seconds=0.5)  # looked up, but not fired yet


def reminders(training: datetime) -> list[datetime]:
    return whole(training + minutes * MINUTE for minutes in REMINDED)


def invitations(training: datetime) -> list[datetime]:
    return whole(training + hours * HOUR for hours in INVITED)


def whole(instants: Iterable[datetime]) -> list[datetime]:
    """In milliseconds, as Carillon counts."""
    return [instant.replace(microsecond=instant.microsecond // 1_000 * 1_000) for instant in instants]


def told(instants: list[datetime], *, key: str = "", id: str = "42", queue: str = QUEUE) -> Schedule:
    return Schedule(key=key, instants=instants, callback=RabbitCallback(queue=queue, payload={"id": id}))


def once(key: str, instants: Iterable[datetime]) -> Counter[tuple[str, datetime]]:
    return Counter((key, instant) for instant in instants)


@asynccontextmanager
async def api(house: House) -> AsyncIterator[tuple[AsyncCarillon, int]]:
    port = free_port()
    await house.start("api", CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN=ADMIN)
    async with AsyncCarillon(f"http://127.0.0.1:{port}", user=ADMIN) as client:
        yield client, port


async def now(house: House, after: timedelta = timedelta()) -> datetime:
    """The database's time, so much later."""
    return await house.capabilities.time.now() + after


async def silent_after(house: House, client: AsyncCarillon, receiver: Receiver, last: datetime) -> None:
    """Wait for a schedule of our own that is due behind everything else: whatever has not come by then never will."""
    sentinel = max(last, await now(house)) + timedelta(seconds=1)
    await client.schedules.create(told([sentinel], key="sentinel"))
    async with asyncio.timeout(30):
        while not any(each.key == "sentinel" for each in receiver.all):
            await asyncio.sleep(0.03)
    receiver.all = [each for each in receiver.all if each.key != "sentinel"]


async def test_reminders_of_a_training_that_is_near(house: House) -> None:
    """Some of its instants are past when it is made: they are told, and do not fire."""
    await house.start("scheduler")
    async with api(house) as (client, _), receiving(house, QUEUE) as receiver:
        instants = reminders(await now(house, 50 * MINUTE))
        made = await client.schedules.create(told(instants, key="training-42"))
        await receiver.got(len(made.instants) - len(made.skipped))
        await silent_after(house, client, receiver, instants[-1])
    assert list(made.skipped) == [instant for instant in instants if instant <= made.updated_at]
    assert set(instants[:3]) <= set(made.skipped) < set(instants)
    assert receiver.instants == once("training-42", instants[len(made.skipped) :])
    assert {each.body for each in receiver.all} == {b'{"id":"42"}'}
    assert all(each.came >= each.due for each in receiver.all)


async def test_invitations_to_trainings_that_are_moved(house: House) -> None:
    """One is put off, one is brought forward so far that its first invitation is past."""
    await house.start("scheduler")
    async with api(house) as (client, _), receiving(house, QUEUE) as receiver:
        start = await now(house)
        before = invitations(start + 150 * HOUR)  # the first one comes after 78 hours: more than 3 seconds
        later, sooner = invitations(start + 190 * HOUR), invitations(start + 60 * HOUR)
        for key in ("put-off", "brought-forward"):
            await client.schedules.create(told(before, key=key))
        put_off = await client.schedules.put("put-off", told(later, id="later"))
        brought_forward = await client.schedules.put("brought-forward", told(sooner, id="sooner"))
        assert await now(house) < before[0]
        left = sooner[len(brought_forward.skipped) :]
        await receiver.got(len(later) + len(left))
        await silent_after(house, client, receiver, later[-1])
    assert (put_off.created, put_off.skipped, list(put_off.next)) == (False, (), later)
    assert sooner[0] in brought_forward.skipped
    assert left
    assert receiver.instants == once("put-off", later) + once("brought-forward", left)
    assert {(each.key, each.body) for each in receiver.all} == {
        ("put-off", b'{"id":"later"}'),
        ("brought-forward", b'{"id":"sooner"}'),
    }


@pytest.mark.slow
async def test_a_training_that_is_deleted_reminds_nobody_any_more(house: House) -> None:
    await house.start("scheduler")
    async with api(house) as (client, _), receiving(house, QUEUE) as receiver:
        instants = reminders(await now(house, 105 * MINUTE))
        await client.schedules.create(told(instants, key="training-42"))
        await receiver.got(2)
        await client.schedules.delete("training-42")
        deleted = await now(house, HAND_OVER)
        await silent_after(house, client, receiver, instants[-1])
        with pytest.raises(NotFound):
            await client.schedules.get("training-42")
    dues = [each.due for each in receiver.all]
    assert set(receiver.instants.values()) == {1}
    assert max(dues) <= deleted < instants[-3]


async def test_only_past_instants_are_a_mistake_that_changes_nothing(house: House) -> None:
    async with api(house) as (client, _):
        past = reminders(await now(house, -200 * MINUTE))
        with pytest.raises(Invalid) as caught:
            await client.schedules.create(told(past, key="training-42"))
        assert (caught.value.status, caught.value.field) == (422, "schedules")
        with pytest.raises(NotFound):
            await client.schedules.get("training-42")
        ahead = invitations(await now(house, 1_000 * HOUR))
        await client.schedules.create(told(ahead, key="training-42"))
        with pytest.raises(Invalid) as caught:
            await client.schedules.put("training-42", told(past))
        assert caught.value.field == "schedules"
        assert list((await client.schedules.get("training-42")).next) == ahead


async def test_two_callers_may_use_the_same_key(house: House) -> None:
    await house.start("scheduler")
    async with api(house) as (client, port), receiving(house, QUEUE) as receiver:
        coach, club = [await service(port, name) for name in ("coach", "club")]
        try:
            first, second = invitations(await now(house, 150 * HOUR)), invitations(await now(house, 160 * HOUR))
            assert (await coach.schedules.create(told(first, key="training-42", id="coach"))).created
            assert (await club.schedules.create(told(second, key="training-42", id="club"))).created
            await coach.schedules.delete("training-42")
            assert await now(house) < first[0]
            assert [each.key async for each in club.schedules.list()] == ["training-42"]
            assert [each.key async for each in coach.schedules.list()] == []
            await receiver.got(len(second))
            await silent_after(house, client, receiver, second[-1])
        finally:
            await coach.close()
            await club.close()
    assert receiver.instants == once("training-42", second)
    assert {each.body for each in receiver.all} == {b'{"id":"club"}'}


async def service(port: int, name: str) -> AsyncCarillon:
    """A client with a token of its own."""
    status, issued = await Customer(port).call("POST", "/tokens", {"name": name})
    assert status == 201, issued
    return AsyncCarillon(f"http://127.0.0.1:{port}", token=issued["token"])
