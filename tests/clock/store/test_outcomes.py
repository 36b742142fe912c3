"""Outcomes, dead letters and idempotency keys in the database."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.clock.rules.outcomes import DeadLetter, ErrorCount, Outcome, OutcomeResult, place_of
from shared.console.store_idempotency import FirstUse
from shared.core.errors import Invalid
from shared.core.ids import Idempotency
from shared.store import Store

pytestmark = pytest.mark.native

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def outcome(number: int, owner: str = "schedule/ns/a") -> Outcome:
    return Outcome(
        id=f"{owner}/{number}",
        owner=owner,
        due=NOON,
        at=NOON + number * SECOND,
        late_ms=number * 1000,
        attempt=number,
        result=OutcomeResult.FAILED,
        error="$x.y \N{SNOWMAN}",
    )


def letter(id: str, key: str = "a", namespace: str = "ns") -> DeadLetter:
    return DeadLetter(
        id=id,
        death=id,
        namespace=namespace,
        key=key,
        schedule_id=f"{namespace}/{key}",
        generation="g",
        due=NOON,
        died_at=NOON + SECOND,
        attempts=10,
        error="refused",
    )


async def test_an_owners_latest_outcomes_come_first(store: Store) -> None:
    await store.outcomes.add([])
    await store.outcomes.add([outcome(2), outcome(1), outcome(1, owner="schedule/ns/ab")])
    await store.outcomes.add([replace(outcome(2), error="another"), outcome(3)])
    assert await store.outcomes.latest("schedule/ns/a", 10) == [outcome(3), outcome(2), outcome(1)]
    assert await store.outcomes.latest("schedule/ns/a", 2) == [outcome(3), outcome(2)]
    assert await store.outcomes.latest("schedule/ns/", 2) == []


async def test_what_dies_again_has_one_letter_of_its_last_death(store: Store) -> None:
    first, again = letter("1"), replace(letter("1"), death="again", died_at=NOON + 2 * SECOND, error="again")
    await store.dead_letters.add([first])
    await store.dead_letters.add([again, letter("2")])
    assert await store.dead_letters.page("ns", limit=10) == [again, letter("2")]
    assert await store.dead_letters.page("ns", limit=10, before=place_of(again)) == [letter("2")]
    assert await store.dead_letters.page("ns", limit=10, before=place_of(letter("2"))) == []
    assert await store.dead_letters.remove([first]) == 0
    assert await store.dead_letters.remove([again]) == 1


async def test_what_dies_again_while_the_clock_steps_back_has_the_letter_of_its_last_death(store: Store) -> None:
    first = replace(letter("1"), death="first")
    again = replace(letter("1"), death="again", died_at=NOON - SECOND)
    await store.dead_letters.add([first])
    for _ in range(2):  # once more, as where the answer was lost
        await store.dead_letters.add([again])
    assert await store.dead_letters.page("ns", limit=10) == [again]
    assert await store.dead_letters.remove([first]) == 0
    assert await store.dead_letters.remove([again]) == 1


async def test_outcomes_are_forgotten_step_by_step(store: Store) -> None:
    await store.outcomes.add([outcome(number) for number in range(6)])
    steps = [await store.outcomes.forget(before=NOON + 5 * SECOND, limit=2) for _ in range(4)]
    assert steps == [2, 2, 1, 0]
    assert await store.outcomes.latest("schedule/ns/a", 10) == [outcome(5)]


async def test_a_dead_letter_belongs_to_its_namespace(store: Store) -> None:
    await store.dead_letters.add([])
    await store.dead_letters.add([letter("1")])
    await store.dead_letters.add([replace(letter("1"), error="another"), letter("2", namespace="ns2")])
    assert await store.dead_letters.get("ns", "1") == letter("1")
    assert await store.dead_letters.get("ns", "2") is None
    assert await store.dead_letters.get("ns2", "2") == letter("2", namespace="ns2")


async def test_dead_letters_are_paged_newest_first_by_namespace_key_and_error(store: Store) -> None:
    # Three die at a time, so that a page may begin among those of one moment.
    letters = [
        replace(letter(f"{n}", key="ab"[n % 2]), died_at=NOON + n // 3 * SECOND, error="ef"[n > 6]) for n in range(9)
    ]
    await store.dead_letters.add([*letters, letter("35", namespace="ns2")])
    newest = letters[::-1]
    for limit in range(1, 10):
        seen: list[DeadLetter] = []
        while True:
            page = await store.dead_letters.page("ns", before=place_of(seen[-1]) if seen else None, limit=limit)
            seen += page
            if not page.more:
                break
        assert seen == newest
    assert await store.dead_letters.page("ns", key="b", limit=2) == [letters[7], letters[5]]
    assert await store.dead_letters.page("ns", key="b", before=place_of(letters[5]), limit=2) == [
        letters[3],
        letters[1],
    ]
    assert await store.dead_letters.page("ns", error="f", limit=9) == newest[:2]
    assert await store.dead_letters.page("ns", key="c", limit=2) == []
    assert len(await store.dead_letters.page("", limit=20)) == 10


async def test_dead_letters_are_counted_until_a_moment_and_by_error(store: Store) -> None:
    letters = [replace(letter(f"{n}"), died_at=NOON + n * SECOND, error="ab"[n % 3 == 0]) for n in range(6)]
    await store.dead_letters.add([*letters, letter("9", namespace="ns2")])
    assert await store.dead_letters.count("ns", before=NOON + 4 * SECOND, most=100) == 4
    assert await store.dead_letters.count("ns", before=NOON + 4 * SECOND, most=2) == 2
    assert await store.dead_letters.count("ns", error="b", before=NOON + 9 * SECOND, most=100) == 2
    assert await store.dead_letters.count_errors("ns", last=100) == [
        ErrorCount(error="a", count=4, last_died_at=NOON + 5 * SECOND),
        ErrorCount(error="b", count=2, last_died_at=NOON + 3 * SECOND),
    ]
    assert [each.count for each in await store.dead_letters.count_errors("ns", last=1)] == [1]


async def test_dead_letters_are_removed_once(store: Store) -> None:
    await store.dead_letters.add([letter("1"), letter("2"), letter("3")])
    assert await store.dead_letters.remove([letter("1"), letter("2"), letter("nothing")]) == 2
    assert await store.dead_letters.remove([letter("1"), letter("2")]) == 0
    assert await store.dead_letters.remove([]) == 0
    assert await store.dead_letters.page("ns", limit=10) == [letter("3")]


async def test_what_died_again_is_not_removed(store: Store) -> None:
    read = [letter(f"{n}") for n in range(6)]
    again = replace(read[0], died_at=NOON + timedelta(days=1), error="again", death="another")
    await store.dead_letters.add(read)
    await store.dead_letters.add([again])
    assert await store.dead_letters.remove(read) == 5
    assert await store.dead_letters.page("ns", limit=10) == [again]
    assert await store.dead_letters.remove([again]) == 1


async def test_letters_that_died_in_one_moment_are_told_apart(store: Store) -> None:
    """As where a clock was set back: what died again tells the time at which another one had died."""
    read = [replace(letter(f"{n}"), died_at=NOON + n * SECOND, death=f"death-{n}") for n in range(3)]
    again = replace(read[0], died_at=read[2].died_at, death="another")
    await store.dead_letters.add(read)
    await store.dead_letters.add([again])
    assert await store.dead_letters.remove(read) == 2
    assert await store.dead_letters.page("ns", limit=10) == [again]


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (OutcomeResult.FAILED, OutcomeResult.FIRED, OutcomeResult.FIRED),
        (OutcomeResult.FAILED, OutcomeResult.DEAD, OutcomeResult.DEAD),
        (OutcomeResult.DEAD, OutcomeResult.FAILED, OutcomeResult.FAILED),
        (OutcomeResult.FIRED, OutcomeResult.FAILED, OutcomeResult.FIRED),
    ],
)
async def test_of_an_attempt_that_was_made_twice_the_last_word_is_told(
    store: Store, first: OutcomeResult, second: OutcomeResult, told: OutcomeResult
) -> None:
    """But for what the target has: it may be the word of a process that slept."""
    one = replace(outcome(1), result=first)
    again = replace(one, result=second, at=one.at + 9 * SECOND)
    # What is said once more, or late, changes nothing.
    late = replace(one, result=OutcomeResult.FAILED, at=one.at - SECOND)
    for outcomes in ([one, outcome(2)], [again, outcome(3)], [late, one, again]):
        await store.outcomes.add(outcomes)
    assert {each.attempt: each.result for each in await store.outcomes.latest(one.owner, 9)} == {
        1: told,
        2: OutcomeResult.FAILED,
        3: OutcomeResult.FAILED,
    }


async def test_what_was_delivered_is_told_by_whoever_comes_last(store: Store) -> None:
    late = replace(outcome(1), result=OutcomeResult.FIRED, at=NOON - SECOND)
    await store.outcomes.add([outcome(1)])
    await store.outcomes.add([late])
    assert await store.outcomes.latest(late.owner, 9) == [late]


async def test_an_idempotency_key_serves_one_request(store: Store) -> None:
    for _ in range(2):
        assert await store.idempotency.claim(Idempotency("ns/k", "d1")) == FirstUse()
    with pytest.raises(Invalid) as refused:
        await store.idempotency.claim(Idempotency("ns/k", "d2"))
    assert refused.value.field == "Idempotency-Key"
    assert await store.idempotency.recall(Idempotency("ns/k", "d2")) is None
    assert await store.idempotency.recall(Idempotency("ns/k", "d1")) == FirstUse()
    assert await store.idempotency.claim(Idempotency("ns2/k", "d2")) == FirstUse()


async def test_what_the_first_request_with_a_key_made_is_remembered(store: Store) -> None:
    assert await store.idempotency.claim(Idempotency("ns/k", "d1"), at=NOON, made="this") == FirstUse(NOON, "this")
    assert await store.idempotency.claim(Idempotency("ns/k", "d1"), at=NOON + SECOND, made="that") == FirstUse(
        NOON, "this"
    )
    await store.idempotency.remember("ns/k", "more")
    assert await store.idempotency.claim(Idempotency("ns/k", "d1")) == FirstUse(NOON, "more")


async def test_what_was_made_is_replaced_where_nobody_else_was_first(store: Store) -> None:
    await store.idempotency.claim(Idempotency("ns/k", "d1"))
    assert await store.idempotency.replace_made("ns/k", "1", before="")
    assert not await store.idempotency.replace_made("ns/k", "2", before="")
    assert await store.idempotency.replace_made("ns/k", "3", before="1")
    assert await store.idempotency.recall(Idempotency("ns/k", "d1")) == FirstUse(made="3")


async def test_of_many_equal_requests_at_once_one_is_the_first(store: Store) -> None:
    for key in range(20):
        uses = await asyncio.gather(
            *(store.idempotency.claim(Idempotency(f"ns/{key}", "d"), made=str(n)) for n in range(8))
        )
        assert len({use.made for use in uses}) == 1


async def test_idempotency_keys_are_forgotten_step_by_step(store: Store) -> None:
    for key in "abc":
        await store.idempotency.claim(Idempotency(key, "d1"))
    now = await store.now()
    assert await store.idempotency.forget(before=now - timedelta(minutes=1), limit=10) == 0
    steps = [await store.idempotency.forget(before=now + timedelta(minutes=1), limit=2) for _ in range(3)]
    assert steps == [2, 1, 0]
    assert await store.idempotency.claim(Idempotency("a", "d2"), made="anew") == FirstUse(made="anew")
