"""The store of suppressions: each is there once, and a bar is never lost to an unsubscription."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.messages.rules.answers import Channel
from shared.messages.rules.suppressions import (
    Suppression,
    SuppressionCause,
    listing_of,
    suppress_address,
    suppression_id,
    unsubscribe_listing,
)
from shared.store import Store
from tests.commands import count_commands
from tests.indexes import read_queries, update_filters
from tests.tiers import and_rarely

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
BOUNCE, COMPLAINT, UNSUBSCRIBE, HAND = SuppressionCause
MAIL = Channel.MAIL
IN_TRANSACTION = 2
"""Updates of each suppression that is added in a transaction."""

Add = Callable[[Store, Sequence[Suppression]], Awaitable[None]]


def suppress(address: str = "ann@example.com", cause: SuppressionCause = HAND, **fields: Any) -> Suppression:
    given: dict[str, Any] = {"app_id": "a", "channel": MAIL, "at": NOW} | fields
    return suppress_address(address=address, cause=cause, **given)


async def add_in_transaction(store: Store, suppressions: Sequence[Suppression]) -> None:
    async with store._client.start_session() as session, await session.start_transaction():
        await store.suppressions.add_in(session, suppressions)


async def add_plainly(store: Store, suppressions: Sequence[Suppression]) -> None:
    await store.suppressions.add(suppressions)


WAYS = pytest.mark.parametrize("add", [add_plainly, add_in_transaction])


@WAYS
async def test_what_was_added_comes_back(store: Store, add: Add) -> None:
    bounced = suppress(cause=BOUNCE, message_id="m1")
    gone = suppress("bo@example.com", UNSUBSCRIBE, list_name="news")
    await add(store, [bounced, gone])
    assert [await store.suppressions.get("a", each.id) for each in (bounced, gone)] == [bounced, gone]
    assert await store.suppressions.get("b", bounced.id) is None


@WAYS
@pytest.mark.parametrize("cause", SuppressionCause)
async def test_to_add_it_again_changes_nothing(store: Store, add: Add, cause: SuppressionCause) -> None:
    first = suppress(cause=cause, message_id="m1")
    await add(store, [first])
    await add(store, [suppress(cause=cause, message_id="m2", at=LATER)])
    assert await store.suppressions.get("a", first.id) == first


@WAYS
@pytest.mark.parametrize("bar", [BOUNCE, COMPLAINT, HAND])
@pytest.mark.parametrize("bar_first", [True, False])
async def test_a_bar_stands_before_an_unsubscription_and_remembers_it(
    store: Store, add: Add, bar: SuppressionCause, bar_first: bool
) -> None:
    barred, gone = suppress(cause=bar, message_id="m1"), suppress(cause=UNSUBSCRIBE, at=LATER)
    for each in (barred, gone) if bar_first else (gone, barred):
        await add(store, [each])
    found = await store.suppressions.get("a", barred.id)
    assert found is not None
    assert (found.cause, found.message_id, found.at, found.unsubscribed_at) == (bar, "m1", NOW, LATER)


async def test_one_bar_does_not_take_the_place_of_another(store: Store) -> None:
    first = suppress(cause=COMPLAINT)
    assert await store.suppressions.add([first]) == set()
    assert await store.suppressions.add([suppress(cause=BOUNCE), suppress("bo@example.com")]) == {0}
    assert await store.suppressions.get("a", first.id) == first


async def test_a_bar_knows_the_address_that_a_link_did_not_tell(store: Store) -> None:
    gone = unsubscribe_listing(listing_of("a", MAIL, "ann@example.com"), at=NOW)
    await store.suppressions.add([gone])
    await store.suppressions.add([suppress(cause=BOUNCE)])
    found = await store.suppressions.get("a", gone.id)
    assert found is not None
    assert found.address == "ann@example.com"


@pytest.mark.parametrize(("again", "updates"), [(HAND, 0), (UNSUBSCRIBE, 20)])
async def test_known_ones_are_found_by_their_ids_alone_and_only_changed_ones_are_written(
    ready_database: str, monkeypatch: pytest.MonkeyPatch, again: SuppressionCause, updates: int
) -> None:
    """Beside another condition the server may look at every suppression for each id."""
    commands, store = count_commands(monkeypatch), Store.open(ready_database)
    people = [f"p{number}@example.com" for number in range(20)]
    await store.suppressions.add([suppress(each) for each in people])
    commands.sent.clear()
    there = await store.suppressions.add([suppress(each, again) for each in [*people, "new@example.com"]])
    await add_in_transaction(store, [suppress(each, again) for each in people])
    await store.close()
    assert there == {*range(20)}
    written = update_filters(commands.sent)
    assert len(written) == updates + IN_TRANSACTION * len(people)
    assert {*map(tuple, written)} == {("_id",)}
    assert {tuple(query.filter) for query in read_queries(commands.sent)} == {("_id",)}


async def test_an_aborted_transaction_adds_nobody(store: Store) -> None:
    await store.suppressions.add([suppress("bo@example.com", UNSUBSCRIBE)])
    async with store._client.start_session() as session:
        await session.start_transaction()
        await store.suppressions.add_in(session, [suppress(), suppress("bo@example.com", BOUNCE)])
        await session.abort_transaction()
    found = await store.suppressions.page("a", limit=10)
    assert [(each.address, each.cause) for each in found] == [("bo@example.com", UNSUBSCRIBE)]


async def test_many_that_add_the_same_at_a_time_add_it_once(store: Store) -> None:
    gone, barred = suppress(cause=UNSUBSCRIBE), suppress(cause=BOUNCE, message_id="m1")
    there = await asyncio.gather(*(store.suppressions.add([each]) for each in [gone, barred] * 5))
    assert sum(not positions for positions in there) == 1
    found = await store.suppressions.get("a", gone.id)
    assert found is not None
    assert (found.cause, found.message_id, found.unsubscribed_at) == (BOUNCE, "m1", NOW)


async def test_a_batch_is_looked_up_at_once(store: Store) -> None:
    addresses = [f"u{number}@example.com" for number in range(1_000)]
    added = [
        suppress(addresses[0], BOUNCE),
        suppress(addresses[1], UNSUBSCRIBE, list_name="news"),
        suppress(addresses[2], UNSUBSCRIBE, list_name="offers"),
        suppress(addresses[3], HAND, app_id="other"),
        suppress(addresses[4], HAND, channel=Channel.OTHER),
        suppress(addresses[5], UNSUBSCRIBE),
        suppress(addresses[5], HAND, list_name="news"),
        suppress(addresses[6], COMPLAINT),
        suppress(addresses[6], UNSUBSCRIBE, list_name="news"),
    ]
    await store.suppressions.add(added)
    found = await store.suppressions.find("a", MAIL, addresses, "news")
    assert {address: each.cause for address, each in found.items()} == {
        addresses[0]: BOUNCE,
        addresses[1]: UNSUBSCRIBE,
        addresses[5]: HAND,
        addresses[6]: COMPLAINT,
    }
    assert {*await store.suppressions.find("a", MAIL, addresses)} == {addresses[0], addresses[5], addresses[6]}
    assert await store.suppressions.find("a", MAIL, []) == {}


async def test_an_app_sees_its_own_by_pages_and_by_an_address(store: Store) -> None:
    added = [suppress(f"u{number}@example.com") for number in range(5)]
    link = unsubscribe_listing(listing_of("a", Channel.OTHER, "u1@example.com", "news"), at=NOW)
    await store.suppressions.add([*added, link, suppress("u1@example.com", app_id="other")])
    ids = sorted(each.id for each in [*added, link])
    first = await store.suppressions.page("a", limit=4)
    assert ([each.id for each in first], first.more) == (ids[:4], True)
    assert [each.id for each in await store.suppressions.page("a", after=ids[3], limit=4)] == ids[4:]
    of_one = await store.suppressions.page("a", addresses=["u1@example.com"], limit=10)
    assert {each.id for each in of_one} == {added[1].id, link.id}
    assert await store.suppressions.page("a", addresses=["U1@example.com"], limit=10) == []


async def test_what_is_removed_is_gone_and_only_its_own_app_removes_it(store: Store) -> None:
    added = suppress(cause=COMPLAINT)
    await store.suppressions.add([added])
    assert await store.suppressions.remove("other", added.id) is None
    assert await store.suppressions.remove("a", added.id) == added
    assert await store.suppressions.remove("a", added.id) is None


async def test_whoever_has_unsubscribed_stays_so_when_the_bar_is_lifted(store: Store) -> None:
    gone = suppress(cause=UNSUBSCRIBE)
    await store.suppressions.add([gone])
    await store.suppressions.add([suppress(cause=BOUNCE, message_id="m1", at=LATER)])
    removed = await store.suppressions.remove("a", gone.id)
    assert removed is not None
    assert removed.cause is BOUNCE
    assert await store.suppressions.get("a", gone.id) == gone
    assert await store.suppressions.remove("a", gone.id) == gone
    assert await store.suppressions.get("a", gone.id) is None


async def test_who_comes_back_lifts_no_bar(store: Store) -> None:
    gone, both = suppress("ann@example.com", UNSUBSCRIBE), suppress("bo@example.com", UNSUBSCRIBE)
    barred = suppress("bo@example.com", COMPLAINT)
    await store.suppressions.add([gone, both])
    await store.suppressions.add([barred])
    for each in (gone, both):
        await store.suppressions.resubscribe(each.id)
    assert await store.suppressions.get("a", gone.id) is None
    assert await store.suppressions.get("a", both.id) == barred
    await store.suppressions.resubscribe(suppression_id("a", MAIL, "nobody@example.com"))


async def test_all_of_an_app_go_and_no_others(store: Store) -> None:
    many = [suppress(f"u{number}@example.com") for number in range(2_500)]
    await store.suppressions.add([*many, suppress(app_id="other")])
    await store.suppressions.remove_of("a")
    assert await store.suppressions.page("a", limit=1) == []
    assert len(await store.suppressions.page("other", limit=10)) == 1


class Model:
    """What a suppression is by the rules, one step after the other: its cause, and whether the wish is known."""

    def __init__(self) -> None:
        self.cause: SuppressionCause | None = None
        self.wish = False

    def add(self, cause: SuppressionCause) -> None:
        if cause is UNSUBSCRIBE:
            self.cause, self.wish = self.cause or cause, True
        elif self.cause in (None, UNSUBSCRIBE):
            self.cause = cause

    def remove(self) -> None:
        if self.cause is not UNSUBSCRIBE and self.wish:
            self.cause = UNSUBSCRIBE
        else:
            self.cause, self.wish = None, False

    def resubscribe(self) -> None:
        self.cause, self.wish = None if self.cause is UNSUBSCRIBE else self.cause, False


@pytest.mark.parametrize("seed", and_rarely(0, rarely=range(1, 4)))
async def test_any_steps_lead_where_the_rules_say(store: Store, seed: int) -> None:
    rand, model, trace = random.Random(seed), Model(), []
    id = suppress().id
    for _ in range(100):
        step = rand.choice([*SuppressionCause, "remove", "resubscribe"])
        trace.append(step)
        match step:
            case SuppressionCause():
                model.add(step)
                await rand.choice([add_plainly, add_in_transaction])(store, [suppress(cause=step)])
            case "remove":
                model.remove()
                await store.suppressions.remove("a", id)
            case _:
                model.resubscribe()
                await store.suppressions.resubscribe(id)
        found = await store.suppressions.get("a", id)
        stands = (None, False) if found is None else (found.cause, found.unsubscribed_at is not None)
        assert stands == (model.cause, model.wish), trace
