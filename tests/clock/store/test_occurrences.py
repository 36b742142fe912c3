"""Occurrences in the database: claimed by one token each, moved only by it, held back and let go."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.clock.rules.occurrences import HELD_BACK, SHARDS, Occurrence, OccurrenceKind, once, retry_entry, series
from shared.clock.store_occurrences import Heads, PutOff, Visible, fresh_token
from shared.store import Store
from tests.commands import count_commands

pytestmark = pytest.mark.native

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def due_at(number: int, *, owner: str = "schedule/ns/a", kind: OccurrenceKind = OccurrenceKind.ONCE) -> Occurrence:
    return once(owner, "g", NOON + number * SECOND, accepted_at=NOON - HOUR, kind=kind)


def a_series() -> Occurrence:
    return series("schedule/ns/series", "g", NOON, accepted_at=NOON - HOUR)


async def claim(store: Store, shard: int, *, until: datetime, leased_until: datetime) -> tuple[str, int]:
    token = fresh_token()
    return token, await store.occurrences.claim(shard, token, Visible(until), leased_until=leased_until)


async def claimed(store: Store, *occurrences: Occurrence) -> list[Occurrence]:
    """Insert these and claim all that is visible within the hour."""
    await store.occurrences.add(occurrences)
    found = []
    for shard in {each.shard for each in occurrences}:
        token, _ = await claim(store, shard, until=NOON + HOUR, leased_until=NOON + 2 * HOUR)
        found += await store.occurrences.read(token, limit=1000)
    return sorted(found, key=lambda each: each.due)


async def stored(store: Store, owner: str = "schedule/ns/a") -> list[Occurrence]:
    return await store.occurrences.find_upcoming(owner, 1000)


def with_lost_token(occurrence: Occurrence) -> Occurrence:
    """What somebody knows who has lost the claim."""
    return replace(occurrence, token="f" * 24)


async def test_what_is_added_comes_back_and_is_added_once(store: Store) -> None:
    first, second, third = due_at(1), due_at(2, kind=OccurrenceKind.ASKED), replace(due_at(3), token="t", attempts=4)
    await store.occurrences.add([])
    await store.occurrences.add([second, first])
    await store.occurrences.add([replace(first, attempts=9), third])
    assert await stored(store) == [first, second, third]
    assert await store.occurrences.find_upcoming(first.owner, 2) == [first, second]
    assert await store.occurrences.count() == 3


async def test_each_entry_goes_to_exactly_one_of_many_claimers(store: Store) -> None:
    entries = [due_at(number) for number in range(200)]
    await store.occurrences.add(entries)

    async def claimer() -> list[tuple[str, int]]:
        return [await claim(store, shard, until=NOON + HOUR, leased_until=NOON + 2 * HOUR) for shard in range(SHARDS)]

    claims = [claim for claims in await asyncio.gather(*(claimer() for _ in range(6))) for claim in claims]
    assert len({token for token, _ in claims}) == len(claims)
    assert sum(count for _, count in claims) == len(entries)
    found = []
    for token, count in claims:
        page = await store.occurrences.read(token, limit=1000)
        assert len(page) == count
        assert all(each.token == token and each.claims == 1 for each in page)
        found += page
    assert sorted(each.id for each in found) == sorted(each.id for each in entries)


async def test_a_claim_takes_only_its_shard_and_only_what_is_visible(store: Store) -> None:
    one = due_at(0)
    other = next(each for each in map(due_at, range(1, 1000)) if each.shard == one.shard)
    stranger = next(each for each in map(due_at, range(1, 1000)) if each.shard != one.shard)
    await store.occurrences.add([one, other, stranger])
    token, count = await claim(store, one.shard, until=NOON, leased_until=NOON + HOUR)
    assert count == 1
    assert await store.occurrences.read(token, limit=10) == [
        replace(one, token=token, visible_at=NOON + HOUR, claims=1)
    ]
    again = await claim(store, one.shard, until=NOON, leased_until=NOON + HOUR)
    assert again[1] == 0
    assert again[0] != token


async def test_an_expired_lease_is_claimed_again_and_the_first_has_lost_it(store: Store) -> None:
    [first] = await claimed(store, due_at(0))
    token, count = await claim(store, first.shard, until=NOON + 3 * HOUR, leased_until=NOON + 4 * HOUR)
    assert count == 1
    assert await store.occurrences.read(first.token, limit=10) == []
    [second] = await store.occurrences.read(token, limit=10)
    assert second.claims == 2
    assert await store.occurrences.ours([first]) == []
    assert await store.occurrences.ours([second]) == [second]


async def test_a_slice_is_read_page_by_page(store: Store) -> None:
    entries = [replace(due_at(number), token="ours") for number in range(25)]
    await store.occurrences.add([*entries, replace(due_at(25), token="theirs"), due_at(26)])
    found: list[Occurrence] = []
    sizes = []
    while page := await store.occurrences.read("ours", after=found[-1].id if found else "", limit=10):
        sizes.append(len(page))
        found += page
    assert sizes == [10, 10, 5]
    assert found == sorted(entries, key=lambda each: each.id)


@pytest.mark.parametrize("known", [0, 9, 10, 12])
async def test_what_only_a_later_version_knows_costs_no_more_than_its_pages(
    monkeypatch: pytest.MonkeyPatch, ready_database: str, store: Store, known: int
) -> None:
    commands = count_commands(monkeypatch)
    entries = sorted((replace(due_at(number), token="ours") for number in range(60)), key=lambda each: each.id)
    await store.occurrences.add(entries)
    later = {"_id": {"$in": [each.id for each in entries[known:]]}}
    await store._database["occurrences"].update_many(later, {"$set": {"kind": "of-tomorrow"}})
    counted = Store.open(ready_database)
    assert await counted.occurrences.read("ours", limit=10) == entries[: min(known, 10)]
    assert commands.counts["find"] <= 7
    await counted.close()


async def test_heads_name_the_shards_and_the_oldest(store: Store) -> None:
    assert await store.occurrences.heads(Visible(NOON + HOUR)) is None
    await store.occurrences.add([due_at(1), due_at(2), due_at(10)])
    assert await store.occurrences.heads(Visible(NOON)) is None
    heads = await store.occurrences.heads(Visible(NOON + 2 * SECOND))
    assert heads is not None
    assert heads.oldest == NOON + SECOND
    assert heads.shards is not None
    assert sorted(heads.shards) == sorted({due_at(1).shard, due_at(2).shard})


async def test_groups_of_owners_are_passed_over(store: Store) -> None:
    ours = [due_at(1, owner=owner) for owner in ("schedule/ns0/a", "schedule/ns-/a", "schedule/n/a", "batch/ns/1")]
    await store.occurrences.add([due_at(0), due_at(0, owner="schedule/ns/~"), *ours])
    visible = Visible(NOON + HOUR, without=frozenset({"schedule/ns", "schedule/none"}))
    heads = await store.occurrences.heads(visible)
    assert heads is not None
    assert heads.oldest == NOON + SECOND
    assert set(heads.shards or ()) == {each.shard for each in ours}
    tokens = [fresh_token() for _ in range(SHARDS)]
    for shard, token in enumerate(tokens):
        await store.occurrences.claim(shard, token, visible, leased_until=NOON + 2 * HOUR)
    claimed = [each for token in tokens for each in await store.occurrences.read(token, limit=10)]
    assert {each.owner for each in claimed} == {each.owner for each in ours}
    left = await store.occurrences.heads(Visible(NOON + HOUR))
    assert left is not None
    assert left.oldest == NOON


async def test_heads_of_very_much_name_all_shards(store: Store) -> None:
    entries = [due_at(number) for number in range(64)]
    await store.occurrences.add(entries[1:])
    heads = await store.occurrences.heads(Visible(NOON + HOUR))
    assert heads is not None
    assert set(heads.shards or ()) == {each.shard for each in entries[1:]}
    await store.occurrences.add(entries[:1])
    assert await store.occurrences.heads(Visible(NOON + HOUR)) == Heads(None, NOON)


async def test_complete_deletes_what_its_tokens_hold_and_nothing_else(store: Store) -> None:
    await store.occurrences.complete([])
    mine = await claimed(store, *map(due_at, range(6)))
    assert len({each.token for each in mine}) > 1
    await store.occurrences.complete([mine[0]])
    assert await stored(store) == mine[1:]
    await store.occurrences.complete(mine[:4])
    assert await stored(store) == mine[4:]
    await store.occurrences.complete([with_lost_token(mine[4])])
    await store.occurrences.complete([with_lost_token(mine[4]), replace(mine[5], token=mine[4].token + "x")])
    assert await stored(store) == mine[4:]


async def test_who_lost_the_token_changes_nothing(store: Store) -> None:
    [mine] = await claimed(store, a_series())
    late = with_lost_token(mine)
    next_one = replace(mine, due=NOON + HOUR, fires_at=NOON + HOUR, visible_at=NOON + HOUR, token="", runs=1)
    await store.occurrences.complete([late])
    await store.occurrences.advance([(late, next_one)])
    await store.occurrences.retry([PutOff(late, NOON, attempts=3)])
    assert not await store.occurrences.begin(late)
    await store.occurrences.acquit([late])
    await store.occurrences.hand_over([late], "t", leased_until=NOON)
    await store.occurrences.hold_these([late])
    assert await store.occurrences.take(late.id, late.token, leased_until=NOON) is None
    assert await store.occurrences.ours([late]) == []
    assert await stored(store, mine.owner) == [mine]


async def test_retry_makes_it_visible_at_its_moment(store: Store) -> None:
    await store.occurrences.retry([])
    one, two = await claimed(store, due_at(0), due_at(1))
    retries = [PutOff(one, NOON + 5 * SECOND, attempts=1), PutOff(two, NOON + 9 * SECOND, attempts=0)]
    await store.occurrences.retry(retries)
    later = [NOON + 5 * SECOND, NOON + 9 * SECOND]
    assert await stored(store) == [
        replace(one, fires_at=later[0], visible_at=later[0], attempts=1, claims=0, token=""),
        replace(two, fires_at=later[1], visible_at=later[1], attempts=0, claims=0, token=""),
    ]
    await store.occurrences.retry([PutOff(one, NOON, attempts=7)])
    assert (await stored(store))[0].attempts == 1


async def test_calls_that_wait_for_their_next_try_are_counted_once_and_the_first_is_known(store: Store) -> None:
    [moving, one, other, dead, by_hand] = await claimed(
        store,
        a_series(),
        *(due_at(number, owner="schedule/ns/series") for number in (1, 2, 3)),
        due_at(4, owner="schedule/ns/series", kind=OccurrenceKind.ASKED),
    )
    [job] = await claimed(store, due_at(5, owner="job/j/plan"))
    later = NOON + HOUR

    async def told() -> tuple[int, datetime | None]:
        count = await store.occurrences.count_retries("schedule/")
        return count, await store.occurrences.find_next_try("schedule/ns/series", "g", now=later)

    assert await told() == (0, None)
    await store.occurrences.retry([PutOff(moving, NOON, attempts=0), PutOff(job, NOON, attempts=2)])
    assert await told() == (0, None)
    moments = ((one, 90), (other, 80), (by_hand, 70), (dead, 60))
    retries = [PutOff(each, NOON + at * SECOND, attempts=7) for each, at in moments]
    await store.occurrences.retry(retries)
    assert await told() == (4, NOON + 60 * SECOND)
    assert await store.occurrences.find_next_try("schedule/ns/series", "h", now=later) == NOON + 70 * SECOND
    await store.occurrences.remove(dead.id)
    await store.occurrences.add([retry_entry(a_series(), fires_at=NOON + 5 * SECOND, attempts=1)])
    assert await told() == (4, NOON + 5 * SECOND)
    await store.occurrences.hold("schedule/ns/series", "g")
    assert await told() == (1, NOON + 70 * SECOND)
    await store.occurrences.remove_of("schedule/ns/series")
    assert await told() == (0, None)


async def test_move_takes_a_series_to_its_next_instant(store: Store) -> None:
    await store.occurrences.advance([])
    [mine] = await claimed(store, a_series())
    then = NOON + HOUR
    next_one = replace(mine, due=then, fires_at=then, visible_at=then, token="", claims=0, attempts=0, runs=1)
    await store.occurrences.advance([(mine, next_one)])
    assert await stored(store, mine.owner) == [next_one]


async def test_a_pause_keeps_the_token_and_what_was_fired_is_still_completed(store: Store) -> None:
    mine, other = await claimed(store, due_at(0), due_at(1))
    await store.occurrences.hold(mine.owner, mine.generation)
    assert await stored(store) == [replace(each, visible_at=HELD_BACK) for each in (mine, other)]
    assert await store.occurrences.ours([mine, other]) == []
    await store.occurrences.complete([mine])
    assert await stored(store) == [replace(other, visible_at=HELD_BACK)]
    assert await store.occurrences.heads(Visible(NOON + 1000 * HOUR)) is None


async def test_nobody_but_the_owner_ends_a_pause(store: Store) -> None:
    [mine] = await claimed(store, due_at(0))
    await store.occurrences.hold(mine.owner, mine.generation)
    held = replace(mine, visible_at=HELD_BACK)
    await store.occurrences.hand_over([mine], "t", leased_until=NOON)
    assert await store.occurrences.take(mine.id, mine.token, leased_until=NOON) is None
    assert await stored(store) == [held]
    await store.occurrences.retry([PutOff(mine, NOON, attempts=1)])
    assert await stored(store) == [replace(held, fires_at=NOON, attempts=1, token="", claims=0)]


async def test_a_series_that_is_held_back_moves_and_stays_held_back(store: Store) -> None:
    [mine] = await claimed(store, a_series())
    await store.occurrences.hold(mine.owner, mine.generation)
    then = NOON + HOUR
    next_one = replace(mine, due=then, fires_at=then, visible_at=then, token="", claims=0, runs=1)
    await store.occurrences.advance([(mine, next_one)])
    assert await stored(store, mine.owner) == [replace(next_one, visible_at=HELD_BACK)]
    await store.occurrences.let_go(mine.owner, mine.generation)
    assert await stored(store, mine.owner) == [next_one]


async def test_let_go_brings_back_the_moment_at_which_each_fires(store: Store) -> None:
    waiting, again = due_at(0), retry_entry(due_at(1), fires_at=NOON + 30 * SECOND, attempts=2)
    [taken] = await claimed(store, due_at(2))
    await store.occurrences.add([waiting, again])
    stranger = due_at(3, owner="schedule/ns/ab")
    await store.occurrences.add([stranger])
    await store.occurrences.hold(waiting.owner, waiting.generation)
    assert await stored(store, stranger.owner) == [stranger]
    await store.occurrences.let_go(waiting.owner, waiting.generation)
    assert await stored(store) == [waiting, again, replace(taken, visible_at=taken.due, token="")]
    await store.occurrences.complete([taken])
    assert len(await stored(store)) == 3


async def test_a_pause_does_not_hold_what_is_fired_by_hand(store: Store) -> None:
    asked, plain = due_at(0, kind=OccurrenceKind.ASKED), due_at(1)
    await store.occurrences.add([asked, plain])
    await store.occurrences.hold(asked.owner, asked.generation)
    assert await stored(store) == [asked, replace(plain, visible_at=HELD_BACK)]


async def test_let_go_leaves_what_is_claimed(store: Store) -> None:
    [mine] = await claimed(store, due_at(0))
    await store.occurrences.let_go(mine.owner, mine.generation)
    assert await stored(store) == [mine]


async def test_claimed_ones_are_held_back_by_their_token(store: Store) -> None:
    mine, other = await claimed(store, due_at(0), due_at(1))
    await store.occurrences.hold_these([mine])
    assert await stored(store) == [replace(mine, visible_at=HELD_BACK), other]


async def test_what_is_handed_over_is_taken_once_by_its_new_token(store: Store) -> None:
    [mine] = await claimed(store, due_at(0))
    await store.occurrences.hand_over([mine], "handed", leased_until=NOON + 5 * HOUR)
    handed = replace(mine, visible_at=NOON + 5 * HOUR, token="handed")
    assert await stored(store) == [handed]
    assert await store.occurrences.take(mine.id, mine.token, leased_until=NOON + 6 * HOUR) is None
    taken = await store.occurrences.take(mine.id, "handed", leased_until=NOON + 6 * HOUR)
    assert taken is not None
    assert taken.token not in {"", "handed", mine.token}
    assert taken == replace(handed, visible_at=NOON + 6 * HOUR, token=taken.token, claims=2)
    assert await stored(store) == [taken]
    assert await store.occurrences.take(mine.id, "handed", leased_until=NOON + 6 * HOUR) is None
    assert await store.occurrences.take("nothing", mine.token, leased_until=NOON) is None


async def suspect(store: Store, entry: Occurrence) -> Occurrence:
    """It is claimed, and two attempts of it have begun."""
    [mine] = await claimed(store, entry)
    for _ in range(2):
        assert await store.occurrences.begin(mine)
    return replace(mine, begun=2)


async def test_attempts_of_a_suspect_that_begin_are_counted(store: Store) -> None:
    mine = await suspect(store, due_at(0))
    assert await stored(store) == [mine]
    await store.occurrences.hand_over([mine], "handed", leased_until=NOON + 5 * HOUR)
    taken = await store.occurrences.take(mine.id, "handed", leased_until=NOON + 6 * HOUR)
    assert taken is not None
    assert (taken.claims, taken.begun) == (2, 2)
    assert not await store.occurrences.begin(mine)
    await store.occurrences.hold(mine.owner, mine.generation)
    assert not await store.occurrences.begin(taken)
    assert (await stored(store))[0].begun == 2


async def test_the_end_of_an_attempt_clears_a_suspect(store: Store) -> None:
    one, series_, acquitted = [await suspect(store, each) for each in (due_at(0), a_series(), due_at(1))]
    await store.occurrences.retry([PutOff(one, NOON, attempts=1)])
    await store.occurrences.advance([(series_, replace(series_, due=NOON + HOUR))])
    await store.occurrences.acquit([acquitted])
    left = {each.id: each for owner in {one.owner, series_.owner} for each in await stored(store, owner)}
    assert [(left[each.id].claims, left[each.id].begun) for each in (one, series_, acquitted)] == [(0, 0)] * 3
    assert left[acquitted.id].token == acquitted.token


async def test_a_begin_whose_reply_came_late_is_taken_back_from_whoever_claims_it_now(store: Store) -> None:
    one = await suspect(store, due_at(0))
    assert await store.occurrences.begin(one)  # the third
    await store.occurrences.hand_over([one], "handed", leased_until=NOON + 5 * HOUR)
    await store.occurrences.acquit([one])
    assert [(each.token, each.claims, each.begun) for each in await stored(store)] == [("handed", 0, 0)]


async def test_a_begin_of_somebody_else_is_not_taken_back(store: Store) -> None:
    one = await suspect(store, due_at(0))
    assert await store.occurrences.begin(one)
    await store.occurrences.hand_over([one], "handed", leased_until=NOON + 5 * HOUR)
    assert await store.occurrences.begin(replace(one, token="handed", begun=3))
    await store.occurrences.acquit([one])
    assert [each.begun for each in await stored(store)] == [4]


async def test_what_was_not_attempted_stays_under_suspicion(store: Store) -> None:
    put_off, released = [await suspect(store, due_at(number)) for number in range(2)]
    await store.occurrences.retry([PutOff(put_off, NOON, attempts=0, attempt_ended=False)])
    await store.occurrences.release([released])
    assert [(each.claims, each.begun) for each in await stored(store)] == [(0, 2)] * 2
    assert all(each.is_suspect for each in await stored(store))


async def test_removing_regards_the_owner_and_the_generation(store: Store) -> None:
    mine, newer = due_at(0), once("schedule/ns/a", "h", NOON + SECOND, accepted_at=NOON)
    stranger = due_at(0, owner="schedule/ns/ab")
    await store.occurrences.add([mine, newer, stranger])
    owners = [mine.owner, stranger.owner, "schedule/ns/"]
    assert await store.occurrences.with_any(owners) == {mine.owner, stranger.owner}
    await store.occurrences.remove_of(mine.owner, generation="g")
    assert await stored(store) == [newer]
    await store.occurrences.remove_of(mine.owner)
    assert await store.occurrences.with_any(owners) == {stranger.owner}
    assert await store.occurrences.remove(stranger.id)
    assert not await store.occurrences.remove(stranger.id)
    assert await store.occurrences.with_any(owners) == set()


async def test_what_is_released_is_as_if_it_had_not_been_claimed(store: Store) -> None:
    entries = [due_at(number) for number in range(3)]
    first, second, third = await claimed(store, *entries)
    await store.occurrences.release([first, with_lost_token(second)])
    await store.occurrences.release_rest(third.token, after=max(second.id, third.id))
    assert await stored(store) == [entries[0], second, third]
    for each in (second, third):
        await store.occurrences.release_rest(each.token, after="")
    assert await stored(store) == entries


async def test_owners_of_what_is_held_back_come_in_pages(store: Store) -> None:
    owners = [f"schedule/ns/{letter}" for letter in "abc"]
    mine = [replace(due_at(0, owner=owner), shard=7) for owner in owners]
    again = replace(once(owners[0], "g2", NOON, accepted_at=NOON), shard=7)
    free = replace(due_at(1, owner="schedule/ns/d"), shard=7)
    await store.occurrences.add([*mine, again, free])
    for each in (*mine, again):
        await store.occurrences.hold(each.owner, each.generation)
    first = await store.occurrences.find_held_back(7, limit=2)
    assert {owner: sorted(generations) for owner, generations in first.items()} == {
        owners[0]: ["g", "g2"],
        owners[1]: ["g"],
    }
    assert await store.occurrences.find_held_back(7, after=owners[1], limit=2) == {owners[2]: ["g"]}
    assert await store.occurrences.find_held_back(8, limit=2) == {}
