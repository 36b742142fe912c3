"""The store of templates."""

import asyncio
from typing import Any

import msgspec
import pytest

from shared.core.errors import Conflict
from shared.jobs.rules.templates import Template
from shared.store import Store

BODY: dict[str, Any] = {"$a.b": {"": ["{{x}}", None, 1.5, 2**63 - 1, "\0", "é😀"]}, "_id": "7"}


def template(number: int, *, app: str = "app", name: str = "like", locale: str = "") -> Template:
    return Template(
        id=f"{number:03}", app_id=app, name=name, locale=locale or f"l{number}", body=BODY, created_at=2**62
    )


async def test_a_template_comes_back_as_it_went_in(store: Store) -> None:
    await store.templates.add(template(1))
    assert await store.templates.get("001") == template(1)
    assert await store.templates.get("002") is None


async def test_name_and_locale_are_unique_within_an_app(store: Store) -> None:
    await store.templates.add(template(1, locale="en"))
    await store.templates.add(template(2, locale="EN"))
    await store.templates.add(template(3, locale="en", app="other"))
    with pytest.raises(Conflict):
        await store.templates.add(template(4, locale="en"))
    with pytest.raises(Conflict):
        await store.templates.update("app", "002", name="like", locale="en", body=BODY, defaults=None, at=1)
    assert await store.templates.get("002") == template(2, locale="EN")


async def test_many_are_added_all_or_none(store: Store) -> None:
    await store.templates.add_many([])
    await store.templates.add_many([template(number) for number in range(50)])
    assert len(await store.templates.page("app", limit=100)) == 50
    fresh = [template(number) for number in range(100, 110)]
    for clash in (template(110, locale="l7"), template(110, locale="l100"), template(7, locale="new")):
        with pytest.raises(Conflict):
            await store.templates.add_many([*fresh, clash])
        assert await store.templates.get("100") is None
    assert len(await store.templates.page("app", limit=100)) == 50


async def test_of_two_that_add_the_same_at_once_one_wins_whole(store: Store) -> None:
    sets = [[template(100 * one + number, locale=f"l{number}") for number in range(10)] for one in range(4)]
    results = await asyncio.gather(*(store.templates.add_many(one) for one in sets), return_exceptions=True)
    assert [type(result) for result in results if result is not None] == [Conflict] * 3
    stored = await store.templates.page("app", limit=100)
    winner = sets[results.index(None)]
    assert [one.id for one in stored] == [one.id for one in winner]


async def test_names_with_their_locales_and_sizes(store: Store) -> None:
    for one in (
        template(1, name="a", locale="en"), template(2, name="a", locale="pt"), template(3, name="b", locale="pt"),
        template(4, name="a", locale="fr", app="other"), template(5, name="c", locale="en"),
    ):  # fmt: skip
        await store.templates.add(one)
    size = len(msgspec.json.encode(BODY)) + len("{}")
    outlines = await store.templates.outlines("app", ["a", "b", "none"])
    assert sorted(outlines) == [("a", "en", size), ("a", "pt", size), ("b", "pt", size)]
    assert {one.id for one in await store.templates.find_named("app", ["a", "b"])} == {"001", "002", "003"}
    assert await store.templates.find_names("app") == {"a", "b", "c"}


async def test_update_keeps_defaults_unless_some_are_given_and_looks_at_the_app(store: Store) -> None:
    await store.templates.add(template(1))
    fields: dict[str, Any] = {"name": "love", "locale": "en", "body": {"a": "b"}}
    kept = await store.templates.update("app", "001", **fields, defaults=None, at=7)
    assert kept is not None
    assert (kept.name, kept.locale, kept.body, kept.defaults, kept.updated_at) == ("love", "en", {"a": "b"}, {}, 7)
    given = await store.templates.update("app", "001", **fields, defaults={"$x.y": 1}, at=8)
    assert given is not None
    assert given.defaults == {"$x.y": 1}
    assert await store.templates.get("001") == given
    assert await store.templates.update("other", "001", **fields, defaults=None, at=9) is None


async def test_pages_and_removal_look_at_the_app(store: Store) -> None:
    await store.templates.add_many([template(number) for number in range(5)] + [template(9, app="other")])
    assert not await store.templates.remove("other", "002")
    assert await store.templates.remove("app", "002")
    first = await store.templates.page("app", limit=2)
    rest = await store.templates.page("app", after=first[-1].id, limit=10)
    assert [one.id for one in first + rest] == ["000", "001", "003", "004"]
    await store.templates.remove_of("app")
    assert await store.templates.page("app", limit=10) == []
    assert await store.templates.get("009") is not None
