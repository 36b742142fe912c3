"""Divisions in the store: what is stored first counts, and nothing stays when they are forgotten."""

import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from pymongo.errors import DuplicateKeyError

from shared.audience.rules.audiences import DeviceList, File, PushTable
from shared.audience.rules.devices import Keys
from shared.core.errors import Unavailable
from shared.jobs.rules.dividing import FoundDevices, next_step
from shared.jobs.rules.groups import Division, Step
from shared.store import Store

pytestmark = pytest.mark.native


def a_division(**fields: object) -> Division:
    return Division(id=str(uuid.uuid4()), source=PushTable(100), size=2)


def keys(*some: int) -> Keys:
    return np.array(some, np.int64)


def a_step(division: Division, before: Step | None, attempt: str, *some: int) -> tuple[Step, dict[DeviceList, Keys]]:
    return next_step(division, before, FoundDevices(max(some), {"+0100": keys(*some)}), attempt=attempt)


async def test_a_division_is_decided_once(store: Store) -> None:
    division = a_division()
    assert await store.divisions.get(division.id) is None
    assert await store.divisions.begin(division) == division
    other = Division(id=division.id, source=PushTable(7), size=1)
    assert await store.divisions.begin(other) == division
    assert await store.divisions.get(division.id) == division


async def test_the_step_that_is_stored_first_counts(store: Store) -> None:
    division = a_division()
    (mine, my_lists), (other, other_lists) = (a_step(division, None, attempt, 1, 2, 3) for attempt in ("a", "b"))
    await store.divisions.add_lists(my_lists)
    await store.divisions.add_lists(other_lists)
    assert await store.divisions.add_step(mine) == mine
    assert await store.divisions.add_step(mine) == mine
    assert await store.divisions.add_step(other) == mine
    await store.divisions.remove_lists(other)
    [mine_id], [other_id] = my_lists, other_lists
    kept = await store.divisions.keys(mine_id)
    assert kept is not None
    assert kept.tolist() == [1, 2]
    assert await store.divisions.keys(other_id) is None


async def test_steps_come_in_their_order_and_without_the_rest(store: Store) -> None:
    division, neighbour = a_division(), a_division()
    step: Step | None = None
    for number in range(12):
        step, _ = a_step(division, step, "a", number)
        await store.divisions.add_step(step)
    await store.divisions.add_step(a_step(neighbour, None, "b", 7)[0])
    assert await store.divisions.last_step(division.id) == step
    steps = await store.divisions.steps(division.id)
    assert [(each.number, each.edge, each.left) for each in steps] == [(number, number, {}) for number in range(12)]


async def test_one_holds_a_division_until_silent_for_too_long(store: Store) -> None:
    division, past, future = a_division(), timedelta(seconds=-60), timedelta(seconds=60)

    async def take(holder: str, shift: timedelta = past) -> bool:
        return await store.divisions.take(division.id, holder, before=await store.now() + shift)

    assert not await take("a")
    await store.divisions.begin(division)
    assert [await take(holder) for holder in "ab"] == [True, False]
    assert [await store.divisions.renew(division.id, holder) for holder in "ab"] == [True, False]
    assert await take("b", future)
    assert [await store.divisions.renew(division.id, holder) for holder in "ab"] == [False, True]
    await store.divisions.release(division.id, "a")
    assert not await take("a")
    await store.divisions.release(division.id, "b")
    assert await take("a")


async def test_nothing_stays_of_a_forgotten_division(store: Store) -> None:
    """Not even the lists of somebody who died before their step was stored."""
    division, neighbour = a_division(), a_division()
    for each in (division, neighbour):
        await store.divisions.begin(each)
        step, lists = a_step(each, None, "a", 1, 2, 3)
        await store.divisions.add_lists(lists)
        await store.divisions.add_step(step)
        await store.divisions.add_lists(a_step(each, step, "b", 4, 5, 6)[1])
    await store.divisions.remove_of([division.id])
    assert [await _documents(store, each.id) for each in (division, neighbour)] == [0, 5]


async def _documents(store: Store, division_id: str) -> int:
    collections = (store.divisions._divisions, store.divisions._steps, store.divisions._lists)
    query = {"_id": {"$regex": f"^{division_id}"}}
    return sum([await collection.count_documents(query) for collection in collections])


class Forgetful:
    """A collection whose documents are forgotten as soon as an insert finds them there."""

    def __init__(self, collection: Any) -> None:
        self._collection = collection

    async def insert_one(self, document: Any) -> None:
        try:
            await self._collection.insert_one(document)
        except DuplicateKeyError:
            await self._collection.delete_one({"_id": document["_id"]})
            raise

    async def find_one(self, query: Any) -> Any:
        return await self._collection.find_one(query)


async def test_who_was_not_first_never_goes_on_with_what_is_their_own(store: Store, monkeypatch: Any) -> None:
    """Also where what was first cannot be read any more."""
    division, file = a_division(), File("bucket/users.csv", size=1, version="1")
    step, _ = a_step(division, None, "a", 1)

    def storing(attempt: str, size: int) -> list[Callable[[], Awaitable[object]]]:
        return [
            lambda: store.divisions.begin(replace(division, size=size)),
            lambda: store.divisions.add_step(replace(step, attempt=attempt)),
            lambda: store.files.begin("plan", file, cut_records=size),
        ]

    for first in storing("a", 2):
        await first()
    for owner, name in ((store.divisions, "_divisions"), (store.divisions, "_steps"), (store.files, "_files")):
        monkeypatch.setattr(owner, name, Forgetful(getattr(owner, name)))
    for second in storing("b", 3):
        with pytest.raises(Unavailable, match="cannot be read yet"):
            await second()
