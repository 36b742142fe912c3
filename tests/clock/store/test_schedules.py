"""Schedules in the database: added once, replaced by compare-and-set, paged by key, finished and forgotten."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from shared.clock.rules.callbacks import HttpCallback
from shared.clock.rules.recurrence import Cron
from shared.clock.rules.schedules import Definition, Schedule, ScheduleState, digest, schedule_id
from shared.clock.store_schedules import Ending, _range_of
from shared.store import Store

pytestmark = pytest.mark.native

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
ACTIVE, PAUSED, FINISHED = ScheduleState.ACTIVE, ScheduleState.PAUSED, ScheduleState.FINISHED

LIST = Definition(
    callback=HttpCallback(payload='{"a.b": {"$set": 1}, "n": 1e400}', url="https://example.com", headers={"x.y": "$z"}),
    instants=(NOON, NOON + timedelta(milliseconds=1)),
    labels={"$team.a": "$name"},
)
SERIES = Definition(callback=LIST.callback, recurrence=Cron("0 9 * * *", "Europe/Berlin"), max_occurrences=3)


def made(key: str, definition: Definition = LIST, *, namespace: str = "ns", generation: str = "g1") -> Schedule:
    return Schedule(
        id=schedule_id(namespace, key),
        namespace=namespace,
        key=key,
        generation=generation,
        digest=digest(definition),
        definition=definition,
        created_at=NOON,
        accepted_at=NOON,
    )


def without_instants(schedule: Schedule) -> Schedule:
    return replace(schedule, definition=replace(schedule.definition, instants=()))


async def test_what_is_added_comes_back_whole(store: Store) -> None:
    first, second = made("a"), made("b", SERIES)
    assert await store.schedules.add([first, second]) == set()
    assert await store.schedules.get("ns/a") == first
    assert await store.schedules.get("ns/b") == second
    assert await store.schedules.get("ns/c") is None
    assert await store.schedules.many(["ns/a", "ns/b", "ns/c"]) == {"ns/a": without_instants(first), "ns/b": second}


async def test_taken_ids_are_told_and_left_alone(store: Store) -> None:
    await store.schedules.add([made("a"), made("c")])
    taken = await store.schedules.add([made(key, SERIES, generation="g2") for key in "abcd"])
    assert taken == {"ns/a", "ns/c"}
    found = await store.schedules.many([f"ns/{key}" for key in "abcd"])
    assert {key: each.generation for key, each in found.items()} == {
        "ns/a": "g1",
        "ns/b": "g2",
        "ns/c": "g1",
        "ns/d": "g2",
    }


async def test_what_the_driver_inserts_once_more_is_taken_by_nobody_else(store: Store) -> None:
    """It repeats an insert whose reply was lost; a server that was restarted may not remember the first."""
    await store.schedules.add([made("a", generation="g0")])
    for _ in range(2):
        assert await store.schedules.add([made(key) for key in "abc"]) == {"ns/a"}


@pytest.fixture
async def keys(store: Store) -> list[str]:
    keys = ["a", "a-", "a.b", "a:b", "a~", "a~~", "aa", "ab", "b"]
    await store.schedules.add([made(key) for key in keys] + [made("aa", namespace="ns2")])
    await store.schedules.set_state("ns/ab", to=PAUSED)
    return sorted(keys)


async def test_a_page_has_the_keys_of_a_prefix_behind_a_key(store: Store, keys: list[str]) -> None:
    prefixes = ["", "a", "a~", "a~~", "aa", "ab", "b", "c", "A"]
    for prefix, after in itertools.product(prefixes, ["", "A", "a", "a.b", "a~", "aa", "ab", "b", "c"]):
        found = await store.schedules.page("ns", prefix=prefix, after=after, limit=100)
        expected = [key for key in keys if key.startswith(prefix) and key > after]
        assert [each.key for each in found] == expected, (prefix, after)


async def test_pages_follow_each_other(store: Store, keys: list[str]) -> None:
    found: list[str] = []
    while page := await store.schedules.page("ns", prefix="a", after=found[-1] if found else "", limit=3):
        found += [each.key for each in page]
    assert found == keys[:-1]


async def test_a_page_is_of_one_state_and_without_instants(store: Store, keys: list[str]) -> None:
    [paused] = await store.schedules.page("ns", state=PAUSED, limit=10)
    assert paused == replace(without_instants(made("ab")), state=PAUSED)
    assert await store.schedules.page("ns", state=PAUSED, after="ab", limit=10) == []
    assert await store.schedules.page("ns", state=PAUSED, prefix="aa", limit=10) == []
    assert [each.key for each in await store.schedules.page("ns", state=ACTIVE, prefix="a", limit=100)] == [
        key for key in keys if key not in {"ab", "b"}
    ]
    assert await store.schedules.page("n", limit=10) == []


def labelled(key: str, **labels: str) -> Schedule:
    return made(key, replace(SERIES, labels=labels))


async def keys_with(store: Store, *labels: str, **more: Any) -> list[str]:
    return [each.key for each in await store.schedules.page("ns", labels=labels, **{"limit": 99, **more})]


async def test_labels_find_schedules_that_have_them_all(store: Store) -> None:
    await store.schedules.add([
        labelled("a1", team="billing", env="prod"),
        labelled("a2", team="billing", env="test"),
        replace(labelled("a3", team="billing"), state=PAUSED),
        labelled("b1", team="billing", env="prod"),
        labelled("b2", team="other"),
        made("b3", SERIES),
        replace(labelled("a1", team="billing"), id=schedule_id("else", "a1"), namespace="else"),
    ])  # fmt: skip
    billing = ["a1", "a2", "a3", "b1"]
    assert await keys_with(store, "team:billing") == billing
    assert await keys_with(store, "team:billing", "env:prod") == ["a1", "b1"]
    assert await keys_with(store, "team:billing", prefix="a") == ["a1", "a2", "a3"]
    assert await keys_with(store, "team:billing", state=PAUSED) == ["a3"]
    assert await keys_with(store, "team:other", "env:prod") == await keys_with(store, "team:billin") == []
    assert await store.schedules.count("ns", labels=("team:billing",), state=ACTIVE, most=10) == 3
    read: list[str] = []
    while page := await keys_with(store, "team:billing", after=read[-1] if read else "", limit=1):
        read += page
        await store.schedules.add([labelled("a0", team="billing")])  # behind the reader
    assert read == billing
    [found] = await store.schedules.page("ns", labels=("env:test",), limit=9)
    assert found == labelled("a2", team="billing", env="test")


async def test_a_schedule_that_is_replaced_has_its_new_labels_alone(store: Store) -> None:
    await store.schedules.add([labelled("a", team="billing"), labelled("b", team="billing")])
    await store.schedules.replace(replace(labelled("a", team="other"), generation="g2"), generation="g1")
    await store.schedules.replace(made("b", SERIES, generation="g2"), generation="g1")
    assert await keys_with(store, "team:billing") == []
    assert await keys_with(store, "team:other") == ["a"]
    assert "labels" not in (await store._database["schedules"].find_one({"_id": "ns/b"}) or {"labels": ()})


async def test_an_index_finds_labels(store: Store) -> None:
    await store.schedules.add([labelled(f"k{n:04}", team=f"t{n % 100}", env="prod") for n in range(1_000)])
    field, query = _range_of("ns", "", None, ["team:t7"], "k0400")
    asked = {"find": "schedules", "filter": query, "sort": {field: 1}}
    told = await store._database.command({"explain": asked, "verbosity": "executionStats"})
    assert told["executionStats"]["nReturned"] == 6
    assert told["executionStats"]["totalDocsExamined"] <= 10, told
    assert "labels_1_labelled_key_1" in str(told["queryPlanner"]["winningPlan"]), told


async def test_namespaces_do_not_mix_whatever_their_names(store: Store) -> None:
    names = ["a", "a/b", "a%2Fb", "a b", "ä", "a/"]
    assert len({schedule_id(name, "k") for name in names}) == len(names)
    await store.schedules.add([made("k", namespace=name) for name in names])
    for name in names:
        assert [each.namespace for each in await store.schedules.page(name, limit=10)] == [name]


async def test_replacing_asks_for_the_generation(store: Store) -> None:
    await store.schedules.add([made("a")])
    fresh = replace(made("a", SERIES, generation="g2"), created_at=NOON + HOUR, accepted_at=NOON + HOUR)
    assert not await store.schedules.replace(fresh, generation="g0")
    assert await store.schedules.get("ns/a") == made("a")
    assert await store.schedules.replace(fresh, generation="g1")
    assert await store.schedules.get("ns/a") == replace(fresh, created_at=NOON)
    assert not await store.schedules.replace(made("nothing"), generation="g1")
    assert await store.schedules.get("ns/nothing") is None


async def test_what_the_driver_replaces_once_more_was_replaced(store: Store) -> None:
    await store.schedules.add([made("a")])
    fresh = made("a", SERIES, generation="g2")
    assert [await store.schedules.replace(fresh, generation="g1") for _ in range(2)] == [True, True]
    assert not await store.schedules.replace(made("a", generation="g3"), generation="g1")
    assert await store.schedules.get("ns/a") == fresh


async def test_of_many_who_replace_one_wins(store: Store) -> None:
    await store.schedules.add([made("a")])
    wins = await asyncio.gather(
        *(store.schedules.replace(made("a", generation=f"new{n}"), generation="g1") for n in range(8))
    )
    assert sum(wins) == 1
    found = await store.schedules.get("ns/a")
    assert found is not None
    assert found.generation == f"new{wins.index(True)}"


@pytest.mark.parametrize(("state", "then"), [(ACTIVE, ACTIVE), (PAUSED, PAUSED), (FINISHED, ACTIVE)])
async def test_replacing_keeps_a_pause_and_begins_anew_after_the_end(
    store: Store, state: ScheduleState, then: ScheduleState
) -> None:
    await store.schedules.add([replace(made("a"), state=state, finished_at=NOON)])
    assert await store.schedules.replace(made("a", SERIES, generation="g2"), generation="g1")
    assert await store.schedules.get("ns/a") == replace(made("a", SERIES, generation="g2"), state=then)


async def test_a_state_moves_from_those_that_are_allowed(store: Store) -> None:
    await store.schedules.add([made("a")])
    for _ in range(2):
        assert await store.schedules.set_state("ns/a", to=PAUSED) == replace(made("a"), state=PAUSED)
    assert await store.schedules.set_state("ns/a", to=FINISHED) is None
    assert await store.schedules.get("ns/a") == replace(made("a"), state=PAUSED)
    assert await store.schedules.set_state("ns/a", to=ACTIVE) == made("a")
    assert await store.schedules.set_state("ns/b", to=PAUSED) is None


async def test_what_is_removed_is_told_once(store: Store) -> None:
    await store.schedules.add([made("a")])
    removed = await asyncio.gather(*(store.schedules.remove("ns/a") for _ in range(4)))
    assert [each for each in removed if each is not None] == [without_instants(made("a"))]
    assert await store.schedules.get("ns/a") is None


async def test_those_with_an_end_are_swept_whatever_their_state(store: Store) -> None:
    ended = [replace(made(key), sweep_at=NOON + hours * HOUR) for key, hours in (("b", 1), ("a", 2), ("c", 3))]
    await store.schedules.add([*ended, made("endless", SERIES)])
    await store.schedules.set_state("ns/a", to=PAUSED)
    found = await store.schedules.to_sweep(before=NOON + 3 * HOUR, limit=10)
    assert found == {"ns/a": Ending(PAUSED, "g1"), "ns/b": Ending(ACTIVE, "g1")}
    assert len(await store.schedules.to_sweep(before=NOON + 3 * HOUR, limit=1)) == 1


async def test_a_series_ends_by_its_generation_and_is_swept(store: Store) -> None:
    one, two = made("a", SERIES), made("b", SERIES, generation="g2")
    await store.schedules.add([one, two])
    await store.schedules.end([one, replace(two, generation="g0")], at=NOON)
    assert list(await store.schedules.to_sweep(before=NOON + HOUR, limit=10)) == ["ns/a"]
    await store.schedules.sweep_again(["ns/a"], before=NOON + HOUR, at=NOON + HOUR)
    assert not await store.schedules.to_sweep(before=NOON + HOUR, limit=10)


async def test_only_active_ones_that_are_past_finish(store: Store) -> None:
    past = [replace(made(key), sweep_at=NOON) for key in "abc"]
    await store.schedules.add(past)
    replaced = replace(made("b", generation="g2"), sweep_at=NOON + HOUR)
    await store.schedules.replace(replaced, generation="g1")
    await store.schedules.set_state("ns/c", to=PAUSED)
    await store.schedules.finish([each.id for each in past], before=NOON + HOUR, at=NOON + HOUR)
    finished = replace(past[0], state=FINISHED, finished_at=NOON + HOUR, sweep_at=None)
    assert await store.schedules.get("ns/a") == finished
    assert await store.schedules.get("ns/b") == replaced
    assert await store.schedules.get("ns/c") == replace(past[2], state=PAUSED)


async def test_finished_ones_are_forgotten_step_by_step(store: Store) -> None:
    over = [replace(made(f"old{n}"), state=FINISHED, finished_at=NOON) for n in range(5)]
    young = replace(made("young"), state=FINISHED, finished_at=NOON + HOUR)
    await store.schedules.add([*over, young, made("alive")])
    assert await store.schedules.find_finished(before=NOON, limit=10) == []
    steps = []
    while ids := [each.id for each in await store.schedules.find_finished(before=NOON + HOUR, limit=2)]:
        steps.append(await store.schedules.forget_finished(ids, before=NOON + HOUR))
    assert steps == [2, 2, 1]
    assert [each.key for each in await store.schedules.page("ns", limit=10)] == ["alive", "young"]


async def test_what_is_kept_is_as_if_it_had_finished_now(store: Store) -> None:
    one, two = [replace(made(key), state=FINISHED, finished_at=NOON) for key in "ab"]
    await store.schedules.add([one, two, made("alive")])
    ids = ["ns/a", "ns/alive", "ns/nothing"]
    assert await store.schedules.keep_finished(ids, at=NOON + HOUR) == 1
    assert await store.schedules.keep_finished([], at=NOON) == 0
    assert await store.schedules.forget_finished([*ids, "ns/b"], before=NOON + HOUR) == 1
    assert await store.schedules.forget_finished([], before=NOON + HOUR) == 0
    assert await store.schedules.get("ns/a") == replace(one, finished_at=NOON + HOUR)
    assert await store.schedules.get("ns/alive") == made("alive")
