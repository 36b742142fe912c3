"""A process that dies or freezes as it changes subscriptions holds up no wake-up, and other changes for a moment."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace
from pymongo.asynchronous.client_session import AsyncClientSession

from shared.bus.flushing import UnwokenUpkeep
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.rules.wake_ups import FAR_AHEAD, Rest, Wake
from shared.bus.store_subscriptions import SubscriptionWrite
from shared.bus.store_topics import RegistryWriter, raise_version
from shared.bus.store_wake_ups import wake_up_id
from shared.clock.store_occurrences import fresh_token
from shared.drivers.mongo.transactions import LastingConflict, OwnSession, end_session, run_transaction
from shared.store import Store
from tests.bus.store.made_subscriptions import NOON, add, change, made, version
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = pytest.mark.native

GENEROUS = 30
SECOND = timedelta(seconds=1)
LEASE = NOON + timedelta(minutes=1)
NEIGHBOURS = 199
CHANGES: dict[str, dict[str, object]] = {
    "resumed": {"state": SubscriptionStatus.ACTIVE},
    "its max changes": {"max_events": 7},
    "removed": {"state": SubscriptionStatus.REMOVED},
}


@asynccontextmanager
async def open_change(store: Store, stands: EventSubscription, fields: dict[str, object]) -> AsyncIterator[OwnSession]:
    """Somebody's transaction that changes this subscription, in which all is written and nothing is committed."""
    other = OwnSession(store._database)
    await other.session.start_transaction()
    write = SubscriptionWrite(stands, replace(stands, **fields))
    await store.bus_subscriptions._write_in(other.session, write, NOON)
    yield other
    await end_session(store._database, other.name)
    await other.close()


async def add_neighbours(store: Store) -> list[str]:
    queues = [f"{number:032x}.g" for number in range(NEIGHBOURS)]

    async def work(session: AsyncClientSession) -> None:
        for queue in queues:
            await store.bus_wake_ups.add(queue, 1, NOON, session)

    await run_transaction(store._database, work)
    return queues


async def paused(store: Store) -> EventSubscription:
    stands = await change(store, await add(store, "k"), state=SubscriptionStatus.PAUSED)
    assert stands is not None
    return stands


async def wake_up(store: Store, subscription: EventSubscription) -> dict[str, object] | None:
    return await store._database["occurrences"].find_one({"_id": wake_up_id(subscription.queue)})


@pytest.mark.parametrize("change", and_rarely("removed", rarely=("resumed", "its max changes")))
async def test_a_change_that_stays_open_holds_up_no_wake_up(store: Store, change: str) -> None:
    stands = await paused(store)
    queues = [*await add_neighbours(store), stands.queue]
    async with open_change(store, stands, CHANGES[change]), asyncio.timeout(GENEROUS):
        wakes = [Wake(queue, NOON, 100) for queue in queues]
        handed = await store.bus_wake_ups.wake(wakes, fresh_token(), now=NOON, leased_until=LEASE)
        assert len(handed) == len(queues)
        told = [(each.id, each.token) for each in handed]
        taken = await store.bus_wake_ups.take(told, fresh_token(), until=LEASE)
        assert {each.queue for each in taken.values()} == set(queues)
        assert await store.bus_wake_ups.rest([Rest(taken=each) for each in taken.values()]) == {}


@pytest.mark.parametrize("fields", CHANGES.values(), ids=CHANGES)
async def test_a_wake_up_follows_whose_change_was_stored_by_one_who_died_then(
    store: Store, fields: dict[str, object]
) -> None:
    stands = await paused(store)
    async with open_change(store, stands, fields) as dead:
        await dead.session.commit_transaction()
    before = await wake_up(store, stands)
    assert before is not None and before["fires_at"] == FAR_AHEAD
    await UnwokenUpkeep(store, wake_nobody, past_noon).run_once()
    found = await wake_up(store, stands)
    if fields.get("state") is SubscriptionStatus.REMOVED:
        assert found is None
    else:
        assert found is not None
        assert found["of"]["full"] == fields.get("max_events", stands.max_events)  # type: ignore[index]
        assert (found["fires_at"] < FAR_AHEAD) is ("state" in fields)  # type: ignore[operator]
    assert await store._database["bus_unwoken"].count_documents({}) == 0


async def test_an_early_change_that_is_followed_late_undoes_no_later_one(store: Store) -> None:
    first = await change(store, await add(store, "k"), max_events=5)
    assert first is not None
    await change(store, first, max_events=9)
    await store.bus_wake_ups.follow(first)
    found = await wake_up(store, first)
    assert found is not None
    assert found["of"]["full"] == 9  # type: ignore[index]


async def wake_nobody(_: object) -> None:
    """Nobody is to be woken."""


async def past_noon() -> datetime:
    return NOON + timedelta(minutes=1)


def frozen(store: Store, thaw: asyncio.Event) -> Callable[[AsyncClientSession], Awaitable[int]]:
    """A change that stops in the middle until then, with the registry in its transaction."""

    async def work(session: AsyncClientSession) -> int:
        raised = await raise_version(store._database, session)
        await thaw.wait()
        return raised

    return work


@asynccontextmanager
async def frozen_writer(store: Store, now: datetime, thaw: asyncio.Event) -> AsyncIterator["asyncio.Task[int]"]:
    task = asyncio.create_task(RegistryWriter(store._database).write(frozen(store, thaw), now=now))
    await until(lambda: is_locked(store), "the transaction")
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Unwanted(Exception):
    """Ends a transaction that was only to show whether it could be."""


async def is_locked(store: Store) -> bool:
    """Whether somebody's transaction has the registry."""

    async def work(session: AsyncClientSession) -> None:
        await raise_version(store._database, session)
        raise Unwanted

    try:
        await run_transaction(store._database, work, patience=0)
    except (LastingConflict, Unwanted) as ended:
        return isinstance(ended, LastingConflict)
    raise AssertionError("it has neither failed nor ended")


async def test_who_freezes_in_a_change_is_ended_by_the_next_one_and_begins_anew(store: Store) -> None:
    stands, thaw, now = await version(store), asyncio.Event(), await store.now()
    async with asyncio.timeout(GENEROUS), frozen_writer(store, now - timedelta(minutes=1), thaw) as task:
        written = await store.bus_subscriptions.write(SubscriptionWrite(None, made("new")), now=await store.now())
        assert written is not None
        assert written.version == stands + 1
        thaw.set()
        assert await task == stands + 2
    assert await store._database["bus_registry_writers"].count_documents({}) == 0


async def test_who_freezes_in_a_change_is_ended_by_upkeep(store: Store) -> None:
    now = await store.now()
    async with asyncio.timeout(GENEROUS), frozen_writer(store, now, asyncio.Event()):
        assert await store.bus_subscriptions.end_overdue_writers(now + SECOND) == 0
        assert await is_locked(store)
        assert await store.bus_subscriptions.end_overdue_writers(await store.now() + timedelta(minutes=1)) == 1
        assert not await is_locked(store)
