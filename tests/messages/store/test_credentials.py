"""The store of credentials, with what their senders change in them several times a second."""

import asyncio
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from shared.core.errors import Conflict
from shared.messages.rules.clocks import adopt
from shared.messages.rules.credentials import Credential, CredentialStatus, SendOrder, SendRetry
from shared.messages.rules.pacing import Pace, PaceGuard, reserve
from shared.messages.rules.places import AccountPlace, enter, have_one_yield
from shared.store import Store
from tests.commands import count_commands

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CLOCK = "primary/1"


def a_credential(id: str = "c1", **fields: object) -> Credential:
    credential = Credential(
        id=id,
        app_id="a",
        name=f"name-{id}",
        kind="sandbox",
        fields={"from": "x", "a.b": {"$c": 2**70}},
        secret="1.key1.sealed",
        fingerprint="f1",
        rate=10.0,
        max_in_flight=20,
        order=SendOrder.SHARES,
        retry=SendRetry(attempts=2, first_delay_seconds=1.5),
        test_recipient="ana@example.com",
        test_content={"text": "{{x}}"},
        shared_with=("b",),
        created_by="me",
        created_at=NOW,
        updated_at=NOW,
    )
    return replace(credential, **fields)


async def test_what_was_added_comes_back(store: Store) -> None:
    credential = a_credential()
    assert await store.credentials.add(credential)
    assert await store.credentials.get("c1") == credential
    assert await store.credentials.find_named("a", "name-c1") == credential
    assert await store.credentials.find_named("b", "name-c1") is None
    assert await store.credentials.get("none") is None


async def test_to_add_it_again_changes_nothing(store: Store) -> None:
    await store.credentials.add(a_credential())
    assert not await store.credentials.add(a_credential(rate=99.0))
    assert await store.credentials.get("c1") == a_credential()


async def test_a_name_is_unique_in_its_app(store: Store) -> None:
    await store.credentials.add(a_credential())
    with pytest.raises(Conflict) as refused:
        await store.credentials.add(a_credential("c2", name="name-c1"))
    assert refused.value.field == "name"
    assert await store.credentials.add(a_credential("c3", name="name-c1", app_id="other"))
    await store.credentials.add(a_credential("c4"))
    with pytest.raises(Conflict):
        await store.credentials.change(a_credential("c4"), a_credential("c4", name="name-c1"))


async def test_an_app_sees_its_own_and_those_that_others_share(store: Store) -> None:
    for number in range(3):
        await store.credentials.add(
            a_credential(f"c{number}", app_id="ab"[number % 2], shared_with=("b",) * (number == 2))
        )
    pages = {app: [each.id for each in await store.credentials.page(app, limit=10)] for app in "abx"}
    assert pages == {"a": ["c0", "c2"], "b": ["c1", "c2"], "x": []}
    first = await store.credentials.page("b", limit=1)
    assert ([each.id for each in first], first.more) == (["c1"], True)
    assert [each.id for each in await store.credentials.page("b", after="c1", limit=1)] == ["c2"]
    assert [await store.credentials.count_of(app, most=10) for app in "abx"] == [2, 1, 0]


async def test_a_change_of_what_was_changed_meanwhile_is_none(store: Store) -> None:
    old = a_credential()
    await store.credentials.add(old)
    changed = await store.credentials.change(old, replace(old, rate=99.0))
    assert changed == replace(old, rate=99.0, version=2)
    assert await store.credentials.change(old, replace(old, rate=1.0)) is None
    assert await store.credentials.get("c1") == changed


async def test_moves_go_by_the_table(store: Store) -> None:
    await store.credentials.add(a_credential())
    later = NOW.replace(year=2031)
    moved = await store.credentials.move("c1", CredentialStatus.SUSPENDED, why="unpaid", at=later)
    assert moved is not None
    assert (moved.status, moved.why, moved.updated_at, moved.version) == (
        CredentialStatus.SUSPENDED, "unpaid", later, 2,
    )  # fmt: skip
    assert await store.credentials.move("c1", CredentialStatus.SUSPENDED, why="", at=NOW) is None
    assert await store.credentials.move("c1", CredentialStatus.REJECTED, why="", at=NOW) is None
    active = await store.credentials.move("c1", CredentialStatus.ACTIVE, why="", at=NOW)
    assert active is not None and active.sends


async def test_who_was_refused_by_an_old_secret_says_nothing_about_the_new_one(store: Store) -> None:
    await store.credentials.add(a_credential())
    rejected = CredentialStatus.REJECTED
    assert await store.credentials.move("c1", rejected, why="401", at=NOW, secret="1.key1.older") is None
    moved = await store.credentials.move("c1", rejected, why="401", at=NOW, secret="1.key1.sealed")
    assert moved is not None and moved.status is rejected


async def test_those_under_other_keys_are_found(store: Store) -> None:
    for id, secret in (("c1", "1.old.x"), ("c2", ""), ("c3", "1.new.x"), ("c4", "1.older.x")):
        await store.credentials.add(a_credential(id, secret=secret))
    found = await store.credentials.find_sealed_otherwise("new", limit=10)
    assert [each.id for each in found] == ["c1", "c4"]
    assert await store.credentials.count_sealed_otherwise("new") == 2
    assert [each.id for each in await store.credentials.find_sealed_otherwise("new", after="c1", limit=1)] == ["c4"]


async def test_an_apps_own_are_removed_with_it(store: Store) -> None:
    await store.credentials.add(a_credential("c1"))
    await store.credentials.add(a_credential("c2", app_id="other", shared_with=("a",)))
    await store.credentials.remove_of("a")
    assert await store.credentials.get("c1") is None
    assert await store.credentials.remove("c2")
    assert not await store.credentials.remove("c2")


async def test_a_fresh_one_has_the_whole_of_its_rate_and_no_places(store: Store) -> None:
    await store.credentials.add(a_credential())
    traffic = await store.credentials.get_traffic("c1")
    assert traffic is not None
    assert (traffic.pace, traffic.places) == (Pace(), ())
    assert (traffic.rate, traffic.max_in_flight, traffic.order, traffic.flows) == (10, 20, SendOrder.SHARES, True)
    assert await store.credentials.get_traffic("none") is None


async def test_pace_and_places_come_back_as_they_went_in(store: Store) -> None:
    await store.credentials.add(a_credential())
    pace = Pace(seq=7, last_us=2**60, free_us=1, hold_until_us=2, share=1 / 64, slowed_us=3, strikes=4, clock=CLOCK)
    places = (
        AccountPlace(holder="b1", rank=(0, 2**62, "j1"), until_us=2**60, calls=3),
        AccountPlace(holder="w1", rank=(1.5, 1, "j2"), until_us=1, yields=True),
    )
    assert await store.credentials.change_traffic("c1", 0, pace, places)
    traffic = await store.credentials.get_traffic("c1")
    assert traffic is not None
    assert (traffic.pace, traffic.places) == (pace, places)
    assert await store.credentials.get("c1") == a_credential()


async def test_people_and_senders_do_not_undo_each_others_changes(store: Store) -> None:
    old = a_credential()
    await store.credentials.add(old)
    pace, place = Pace(seq=1, last_us=5), (AccountPlace(holder="b1", rank=(0, 1, "j1"), until_us=1),)
    await store.credentials.change_traffic("c1", 0, pace, place)
    await store.credentials.change(old, old.with_rate(500))
    await store.credentials.move("c1", CredentialStatus.SUSPENDED, why="", at=NOW)
    traffic = await store.credentials.get_traffic("c1")
    assert traffic is not None
    assert (traffic.pace, traffic.places, traffic.rate, traffic.flows) == (pace, place, 500, False)
    assert await store.credentials.change_traffic("c1", 1, Pace(seq=2), place)
    known = await store.credentials.get("c1")
    assert known is not None and (known.rate, known.version) == (500, 3)


async def test_no_instant_is_granted_twice_however_many_reserve_at_once(store: Store) -> None:
    await store.credentials.add(a_credential())
    guard, now_us = PaceGuard(), 10**15
    begun = adopt(Pace(), clock=CLOCK, rate=1_000, now_us=now_us - 10**7, guard=guard)
    assert await store.credentials.change_traffic("c1", 0, begun, ())

    async def take(worker: int) -> list[int]:
        """Reserve until it is granted, as a sender does that loses again and again."""
        while True:
            traffic = await store.credentials.get_traffic("c1")
            assert traffic is not None
            reserved = reserve(traffic.pace, rate=1_000, count=5, now_us=now_us, clock=CLOCK, ahead_us=0, guard=guard)
            assert isinstance(reserved, tuple)
            pace, grant = reserved
            if await store.credentials.change_traffic("c1", traffic.pace.seq, pace, traffic.places):
                return [grant.instant(index) for index in range(grant.count)]

    grants = await asyncio.gather(*(take(worker) for worker in range(10)))
    instants = [instant for grant in grants for instant in grant]
    assert len(instants) == len(set(instants)) == 50


async def test_places_are_never_more_than_there_may_be(store: Store) -> None:
    await store.credentials.add(a_credential())

    async def queue(holder: str) -> bool:
        while True:
            traffic = await store.credentials.get_traffic("c1")
            assert traffic is not None
            places = enter(traffic.places, holder, (0, 1, holder), until_us=1, most=2)
            wanted = have_one_yield(traffic.places, (0, 0, holder)) if places is None else places
            pace = replace(traffic.pace, seq=traffic.pace.seq + 1)
            if await store.credentials.change_traffic("c1", traffic.pace.seq, pace, wanted):
                return places is not None

    queued = await asyncio.gather(*(queue(f"b{number}") for number in range(6)))
    traffic = await store.credentials.get_traffic("c1")
    assert traffic is not None
    assert (sum(queued), len(traffic.places)) == (2, 2)
    assert sum(place.yields for place in traffic.places) == 1


async def test_a_change_of_traffic_is_decided_by_what_is_there(
    store: Store, ready_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A majority read lags behind. Whether a credential is gone a majority says."""
    await store.credentials.add(a_credential())
    commands = count_commands(monkeypatch)
    other = Store.open(ready_database)
    assert await other.credentials.get_traffic("c1") is not None
    assert await other.credentials.get_traffic("none") is None
    asked = [sent["readConcern"]["level"] for sent in commands.sent if "find" in sent]
    assert asked == ["local", "local", "majority"]
    await other.close()
