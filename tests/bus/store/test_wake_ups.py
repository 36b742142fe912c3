"""Wake-ups in the database: what is told to them is never forgotten, and only who has the token changes them."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace
from pymongo.asynchronous.client_session import AsyncClientSession

from shared.bus.rules.wake_ups import FAR_AHEAD, Rest, TakenWakeUp, Wake, WakeStage, WakeUp, queue_owner
from shared.bus.store_wake_ups import wake_up_id
from shared.clock.rules.occurrences import Occurrence
from shared.clock.store_occurrences import Visible, fresh_token
from shared.drivers.mongo.documents import BSON_TYPES
from shared.store import Store
from tests.bus.store.made_subscriptions import made

pytestmark = pytest.mark.native

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LEASE = NOON + timedelta(minutes=1)
QUEUES = [f"{number:032x}.g" for number in range(4)]
ONE = QUEUES[0]


async def transact(store: Store, work: Callable[[AsyncClientSession], Awaitable[None]]) -> None:
    async with store._client.start_session() as session:
        await session.with_transaction(work)


async def add(store: Store, *queues: str, full: int = 10) -> None:
    async def work(session: AsyncClientSession) -> None:
        for queue in queues:
            await store.bus_wake_ups.add(queue, full, NOON - SECOND, session)

    await transact(store, work)


async def wake(store: Store, *wakes: Wake, now: datetime = NOON) -> list[tuple[str, str]]:
    handed = await store.bus_wake_ups.wake(wakes, fresh_token(), now=now, leased_until=LEASE)
    return [(found.id, found.token) for found in handed]


async def take(store: Store, handed: list[tuple[str, str]]) -> list[TakenWakeUp]:
    return list((await store.bus_wake_ups.take(handed, fresh_token(), until=LEASE)).values())


async def in_hand(store: Store, queue: str = ONE, events: int = 10) -> TakenWakeUp:
    (taken,) = await take(store, await wake(store, Wake(queue, NOON, events)))
    return taken


async def stored(store: Store, queue: str = ONE) -> Occurrence:
    (found,) = await store.occurrences.find_upcoming(queue_owner(queue), 10)
    return found


async def document(store: Store, queue: str = ONE) -> WakeUp:
    found = await store._database["occurrences"].find_one({"_id": wake_up_id(queue)})
    assert found is not None
    return msgspec.convert(found["of"], WakeUp, builtin_types=BSON_TYPES)


async def test_a_new_one_rests_far_ahead_and_the_clock_reads_it(store: Store) -> None:
    await add(store, ONE, full=7)
    found = await stored(store)
    assert (found.id, found.owner, found.token) == (wake_up_id(ONE), f"bus/{ONE}", "")
    assert found.fires_at == found.visible_at == FAR_AHEAD
    assert await document(store) == WakeUp(full=7)


async def test_it_moves_to_the_first_moment_that_it_is_told_and_no_later_one(store: Store) -> None:
    await add(store, ONE)
    assert await wake(store, Wake(ONE, NOON + 5 * SECOND, 1)) == []
    assert (await stored(store)).visible_at == NOON + 5 * SECOND
    assert await wake(store, Wake(ONE, NOON + 9 * SECOND, 2)) == []
    assert await wake(store, Wake(ONE, NOON + 3 * SECOND, 1)) == []
    found = await stored(store)
    assert (found.visible_at, found.fires_at) == (NOON + 3 * SECOND, NOON + 3 * SECOND)
    assert await document(store) == WakeUp(full=10, waiting=4)


async def test_what_is_full_or_due_is_handed_over_with_one_token(store: Store) -> None:
    await add(store, *QUEUES)
    wakes = [
        Wake(QUEUES[0], NOON, 1),
        Wake(QUEUES[1], NOON + SECOND, 10),
        Wake(QUEUES[2], NOON + SECOND, 9),
        Wake("f" * 32 + ".gone", NOON, 1),
    ]
    handed = await wake(store, *wakes)
    assert {id for id, _ in handed} == {wake_up_id(QUEUES[0]), wake_up_id(QUEUES[1])}
    assert len({token for _, token in handed}) == 1
    assert (await stored(store, QUEUES[1])).visible_at == LEASE
    assert (await document(store, QUEUES[0])).stage is WakeStage.HANDED
    assert await document(store, QUEUES[3]) == WakeUp(full=10)
    (again,) = await wake(store, Wake(QUEUES[2], NOON + SECOND, 1))
    assert again[0] == wake_up_id(QUEUES[2])


async def test_a_claim_of_the_clock_that_came_too_early_is_lost(store: Store) -> None:
    await add(store, ONE)
    await wake(store, Wake(ONE, NOON + 5 * SECOND, 1))
    shard, token = (await stored(store)).shard, fresh_token()
    await store.occurrences.claim(shard, token, Visible(NOON + 6 * SECOND), leased_until=LEASE)
    claimed = await store.occurrences.read(token, limit=10)
    await wake(store, Wake(ONE, NOON + 2 * SECOND, 1))
    assert await store.occurrences.ours(claimed) == []
    assert await store.bus_wake_ups.hand_over(claimed, fresh_token(), until=LEASE) == []
    await store.occurrences.claim(shard, token, Visible(NOON + 6 * SECOND), leased_until=LEASE)
    (claim,) = await store.occurrences.read(token, limit=10)
    assert await wake(store, Wake(ONE, NOON + 4 * SECOND, 1)) == []
    (handed,) = await store.bus_wake_ups.hand_over([claim], fresh_token(), until=LEASE)
    await store.occurrences.complete([claim])
    assert len(await take(store, [(handed.id, handed.token)])) == 1


async def test_by_its_moment_only_what_rests_and_is_due_is_handed_over(store: Store) -> None:
    await add(store, *QUEUES)
    due, busy, later, claimed = QUEUES
    taken = await in_hand(store, busy)
    await wake(store, Wake(due, NOON + SECOND, 1), Wake(later, NOON + 2 * SECOND, 1), Wake(claimed, NOON + SECOND, 1))
    await store.occurrences.claim((await stored(store, claimed)).shard, "clock", Visible(LEASE), leased_until=LEASE)
    ids = list(map(wake_up_id, QUEUES))
    for expected in ({due}, set[str]()):
        token = fresh_token()
        handed, resting = await store.bus_wake_ups.hand_over_due(ids, token, now=NOON + SECOND, until=LEASE)
        assert {(each.id, each.token) for each in handed} == {(wake_up_id(queue), token) for queue in expected}
        assert resting == {wake_up_id(later): NOON + 2 * SECOND}
    assert await store.bus_wake_ups.renew([taken], until=LEASE) == {taken.claim}
    (held,) = await store.bus_wake_ups.hand_over(await store.occurrences.read("clock", limit=9), "t", until=LEASE)
    assert held.id == wake_up_id(claimed)


async def test_only_one_takes_it(store: Store) -> None:
    await add(store, ONE)
    handed = await wake(store, Wake(ONE, NOON, 1))
    (taken,) = await take(store, handed)
    assert (taken.queue, taken.of.stage, taken.of.waiting) == (ONE, WakeStage.BUSY, 1)
    assert await take(store, handed) == []
    assert await store.bus_wake_ups.renew([taken], until=LEASE + SECOND) == {taken.claim}
    assert (await stored(store)).visible_at == LEASE + SECOND


async def test_while_it_is_in_hand_a_wake_only_adds(store: Store) -> None:
    await add(store, ONE)
    taken = await in_hand(store)
    assert await wake(store, Wake(ONE, NOON, 100)) == []
    assert (await stored(store)).token == taken.token
    assert (await document(store)).waiting == 110


async def test_it_rests_only_as_it_was_read(store: Store) -> None:
    await add(store, *QUEUES)
    untouched, woken, lost = [await in_hand(store, queue) for queue in QUEUES[:3]]
    await wake(store, Wake(woken.queue, NOON, 1))
    (given,) = await store.bus_wake_ups.hand_on([lost], fresh_token(), until=LEASE)
    rests = [Rest(taken=each, left=3, fires_at=NOON + SECOND, slow=True) for each in (untouched, woken, lost)]
    again = await store.bus_wake_ups.rest(rests)
    assert list(again) == [woken.claim]
    assert again[woken.claim].of.waiting == 11
    assert await document(store, untouched.queue) == WakeUp(full=10, waiting=3, slow=True)
    found = await stored(store, untouched.queue)
    assert (found.fires_at, found.visible_at, found.token, found.claims) == (NOON + SECOND, NOON + SECOND, "", 0)
    assert (await stored(store, lost.queue)).token == given.token
    assert await store.bus_wake_ups.rest([Rest(taken=again[woken.claim])]) == {}
    assert await document(store, woken.queue) == WakeUp(full=10)


async def test_a_pause_of_the_receiver_is_kept_whatever_comes(store: Store) -> None:
    await add(store, ONE)
    taken, until = await in_hand(store), NOON + 30 * SECOND
    await store.bus_wake_ups.rest([Rest(taken=taken, left=10, fires_at=until, not_before=until)])
    assert await wake(store, Wake(ONE, NOON, 50)) == []
    assert (await stored(store)).fires_at == until
    assert await wake(store, Wake(ONE, NOON, 1), now=until) == []
    assert (await document(store)).waiting == 61


async def test_a_resumed_one_is_due_and_makes_whoever_works_on_it_look_again(store: Store) -> None:
    await add(store, *QUEUES)
    resting, busy = await in_hand(store, QUEUES[0]), await in_hand(store, QUEUES[1])
    await store.bus_wake_ups.rest([Rest(taken=resting, left=10, not_before=FAR_AHEAD)])
    for queue in (resting.queue, busy.queue):
        id, _, generation = queue.partition(".")
        await store.bus_wake_ups.follow(replace(made(), id=id, generation=generation, version=1))
    found = await stored(store, resting.queue)
    assert (found.visible_at, found.fires_at) == (NOON, NOON)
    assert (await stored(store, busy.queue)).visible_at == LEASE
    assert list(await store.bus_wake_ups.rest([Rest(taken=busy, not_before=FAR_AHEAD)])) == [busy.claim]


async def test_deaths_are_counted_until_it_rests(store: Store) -> None:
    await add(store, ONE)
    await in_hand(store)
    shard = (await stored(store)).shard
    taken = None
    for deaths in (1, 2):
        token = fresh_token()
        assert await store.occurrences.claim(shard, token, Visible(LEASE), leased_until=LEASE)
        claimed = await store.occurrences.read(token, limit=10)
        (handed,) = await store.bus_wake_ups.hand_over(claimed, fresh_token(), until=LEASE)
        (taken,) = await take(store, [(handed.id, handed.token)])
        assert taken.of.deaths == deaths
    assert taken is not None
    await store.bus_wake_ups.rest([Rest(taken=taken)])
    assert (await document(store)).deaths == 0


async def test_what_the_broker_did_not_take_comes_due_again(store: Store) -> None:
    await add(store, ONE)
    handed = await store.bus_wake_ups.wake([Wake(ONE, NOON, 1)], fresh_token(), now=NOON, leased_until=LEASE)
    await store.bus_wake_ups.put_back(handed, NOON + 2 * SECOND)
    found = await stored(store)
    assert (found.visible_at, found.token) == (NOON + 2 * SECOND, "")
    assert (await document(store)).stage is WakeStage.RESTING


async def test_at_the_start_of_a_single_process_all_are_let_go(store: Store) -> None:
    await add(store, *QUEUES)
    await in_hand(store, QUEUES[0])
    await wake(store, Wake(QUEUES[1], NOON, 1))
    await store.bus_wake_ups.let_all_go(NOON + SECOND)
    for queue in QUEUES[:2]:
        found = await stored(store, queue)
        assert (found.visible_at, found.token) == (NOON + SECOND, "")
    assert (await stored(store, QUEUES[2])).visible_at == FAR_AHEAD


async def test_removed_ones_are_gone(store: Store) -> None:
    await add(store, ONE)
    taken = await in_hand(store)
    await store.bus_wake_ups.remove(ONE)
    assert await store.bus_wake_ups.renew([taken], until=LEASE) == set()
    assert await store.bus_wake_ups.rest([Rest(taken=taken)]) == {}
    assert await wake(store, Wake(ONE, NOON, 1)) == []


async def test_one_whose_receiver_takes_long_is_handed_on_as_slow(store: Store) -> None:
    await add(store, ONE)
    taken = await in_hand(store)
    slow = replace(taken, of=replace(taken.of, slow=True))
    (given,) = await store.bus_wake_ups.hand_on([slow], fresh_token(), until=LEASE)
    assert given.slow
    assert (await document(store)).slow


async def test_who_has_lost_it_is_not_answered_as_who_has_it(store: Store) -> None:
    """Two runs of one process may ask together."""
    await add(store, ONE)
    lost = await in_hand(store)
    (given,) = await store.bus_wake_ups.hand_on([lost], fresh_token(), until=LEASE)
    (ours,) = await take(store, [(given.id, given.token)])
    for both in ([lost, ours], [ours, lost]):
        assert await store.bus_wake_ups.renew(both, until=LEASE) == {ours.claim}
    await wake(store, Wake(ONE, NOON, 1))
    for both in ([lost, ours], [ours, lost]):
        woken = await store.bus_wake_ups.rest([Rest(taken=each) for each in both])
        assert {claim: taken.of.waiting for claim, taken in woken.items()} == {ours.claim: 11}
