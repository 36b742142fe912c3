"""The store of what runs."""

from datetime import timedelta

from msgspec.structs import replace

from shared.console.rules.processes import ThingInHand
from shared.store import Store
from tests.console.rules.test_processes import NOON, a_process


async def test_a_process_tells_of_itself_at_the_databases_time(store: Store) -> None:
    told = a_process(in_hand=(ThingInHand("push.batch", "j/1", NOON),), in_hand_count=1, lanes={"free": 4})
    before = await store.now()
    await store.processes.tell(told)
    [found] = await store.processes.list()
    assert replace(found, seen_at=told.seen_at) == told
    assert before - timedelta(milliseconds=1) <= found.seen_at <= await store.now()
    await store.processes.tell(replace(told, phase="draining"))
    assert [each.phase for each in await store.processes.list()] == ["draining"]


async def test_one_that_ends_is_forgotten_and_so_is_one_that_is_long_gone(store: Store) -> None:
    for name in "abc":
        await store.processes.tell(a_process(id=name))
    await store.processes.forget("b")
    assert [each.id for each in await store.processes.list()] == ["a", "c"]
    now = await store.now()
    assert await store.processes.forget_gone(before=now - timedelta(seconds=30), limit=10) == 0
    assert await store.processes.forget_gone(before=now + timedelta(seconds=1), limit=10) == 0
    gone = await store.processes.find_gone(before=now + timedelta(seconds=1))
    assert [each.id for each in gone] == ["a", "c"]
    await store.processes.note_gone(gone)
    assert await store.processes.find_gone(before=now + timedelta(seconds=1)) == []
    assert await store.processes.forget_gone(before=now + timedelta(seconds=1), limit=10) == 2
    assert await store.processes.list() == []


async def test_one_that_is_heard_of_meanwhile_is_not_gone(store: Store) -> None:
    await store.processes.tell(a_process(id="a"))
    soon = await store.now() + timedelta(minutes=1)
    gone = await store.processes.find_gone(before=soon)
    await store.processes._processes.update_one({"_id": "a"}, {"$set": {"seen_at": soon - timedelta(seconds=1)}})
    await store.processes.note_gone(gone)
    assert len(await store.processes.find_gone(before=soon)) == 1
    assert await store.processes.forget_gone(before=soon, limit=10) == 0
