"""The store of apps."""

import asyncio

import pytest

from shared.accounts.rules.apps import App
from shared.core.errors import Conflict
from shared.store import Store


def app(number: int, bundle_id: str = "", *, name: str = "") -> App:
    return App(
        id=f"app-{number}",
        name=name or f"game-{number}",
        bundle_id=bundle_id or f"com.example.n{number}",
        created_by="a@example.com",
        created_at=2**62 + number,
        updated_at=2**62 + number,
    )


async def test_an_app_comes_back_as_it_went_in(store: Store) -> None:
    await store.apps.add(app(1))
    assert await store.apps.get("app-1") == app(1)
    assert await store.apps.get("app-2") is None


async def test_a_bundle_id_is_unique(store: Store) -> None:
    await store.apps.add(app(1))
    await store.apps.add(app(2))
    with pytest.raises(Conflict) as refused:
        await store.apps.add(app(3, "com.example.n1"))
    assert refused.value.field == "bundleId"
    with pytest.raises(Conflict):
        await store.apps.update("app-2", name="game-2", bundle_id="com.example.n1", at=1)
    assert await store.apps.get("app-2") == app(2)


async def test_a_bundle_id_may_be_called_as_the_index_of_names(store: Store) -> None:
    await store.apps.add(app(1, "com.name_key.app"))
    with pytest.raises(Conflict) as refused:
        await store.apps.add(app(2, "com.name_key.app"))
    assert refused.value.field == "bundleId"


async def test_update_and_remove_say_whether_there_was_one(store: Store) -> None:
    await store.apps.add(app(1))
    changed = await store.apps.update("app-1", name="other", bundle_id="com.example.other", at=7)
    assert changed is not None
    assert (changed.name, changed.bundle_id, changed.updated_at) == ("other", "com.example.other", 7)
    assert changed.created_at == app(1).created_at
    assert await store.apps.get("app-1") == changed
    assert await store.apps.update("none", name="other", bundle_id="com.example.x", at=7) is None
    assert await store.apps.remove("app-1")
    assert not await store.apps.remove("app-1")
    assert await store.apps.get("app-1") is None


async def test_a_deletion_begins_once_and_may_be_begun_again(store: Store) -> None:
    await store.apps.add(app(1))
    for _ in range(2):
        assert await store.apps.begin_removal("app-1")
    found = await store.apps.get("app-1")
    assert found is not None
    assert found.deleting
    changed = await store.apps.update("app-1", name="other", bundle_id="com.example.other", at=7)
    assert changed is not None
    assert changed.deleting
    assert not await store.apps.begin_removal("none")


async def test_pages_follow_the_ids_and_meet_no_app_twice(store: Store) -> None:
    for number in (3, 1, 5, 2, 4):
        await store.apps.add(app(number))
    first = await store.apps.page(limit=2)
    await store.apps.remove("app-3")
    rest = await store.apps.page(after=first[-1].id, limit=10)
    assert [one.id for one in first + rest] == ["app-1", "app-2", "app-4", "app-5"]
    assert await store.apps.page(after="app-5", limit=1) == []


async def test_a_name_is_taken_once_whatever_its_case(store: Store) -> None:
    await store.apps.add(app(1, name="alpha"))
    await store.apps.add(app(2, name="beta"))
    for name in ("alpha", "Alpha", "ALPHA"):
        with pytest.raises(Conflict) as refused:
            await store.apps.add(app(3, name=name))
        assert refused.value.field == "name"
        with pytest.raises(Conflict) as refused:
            await store.apps.update("app-2", name=name, bundle_id="com.example.n2", at=1)
        assert refused.value.field == "name"
    assert await store.apps.get("app-2") == app(2, name="beta")
    assert await store.apps.get("app-3") is None


async def test_of_many_that_take_a_name_at_once_one_gets_it(store: Store) -> None:
    tries = [store.apps.add(app(number, name="Alpha" if number % 2 else "alpha")) for number in range(20)]
    refused = [error for error in await asyncio.gather(*tries, return_exceptions=True) if error is not None]
    assert {type(error) for error in refused} == {Conflict}
    assert len(await store.apps.page(limit=100)) == 1


async def test_another_spelling_of_its_own_name_is_free_for_an_app(store: Store) -> None:
    await store.apps.add(app(1, name="alpha"))
    changed = await store.apps.update("app-1", name="Alpha", bundle_id="com.example.n1", at=1)
    assert changed is not None
    assert changed.name == "Alpha"
    with pytest.raises(Conflict):
        await store.apps.add(app(2, name="alpha"))


async def test_without_a_name_an_update_leaves_the_name(store: Store) -> None:
    await store.apps.add(app(1, name="alpha"))
    changed = await store.apps.update("app-1", name=None, bundle_id="com.example.other", at=1)
    assert changed is not None
    assert (changed.name, changed.bundle_id) == ("alpha", "com.example.other")


async def test_setup_may_be_repeated(store: Store) -> None:
    await store.setup()


async def test_the_holders_of_many_names_are_found_whatever_their_case(store: Store) -> None:
    names = [f"An-App_{number:043}" for number in range(300)]
    await store.apps.add_new([app(number, name=name) for number, name in enumerate(names)])
    held = await store.apps.find_holders([*map(str.upper, names[:200]), "none"])
    assert held == {name.lower(): f"app-{number}" for number, name in enumerate(names[:200])}
