"""Suppressions go with their app, whatever is cut off and whoever adds one at the last moment."""

from datetime import UTC, datetime

from shared.accounts.rules.apps import App
from shared.messages.barring import SuppressionUpkeep
from shared.messages.rules.answers import Channel
from shared.messages.rules.suppressions import Suppression, SuppressionCause, suppress_address
from shared.store import Store

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def suppress(app_id: str, address: str) -> Suppression:
    return suppress_address(app_id, Channel.OTHER, address, cause=SuppressionCause.HAND, at=NOW)


async def add_app(store: Store, app_id: str) -> None:
    bundle_id = f"com.example.{app_id}"
    await store.apps.add(App(id=app_id, name=app_id, bundle_id=bundle_id, created_by="me", created_at=1, updated_at=1))


async def test_what_is_of_apps_that_are_gone_is_forgotten_and_nothing_else(store: Store) -> None:
    for app_id in ("b", "d"):
        await add_app(store, app_id)
    await store.apps.begin_removal("d")
    many = [suppress("c", f"u{number}") for number in range(1_200)]
    await store.suppressions.add([*(suppress(app_id, "ana") for app_id in "abde"), *many])
    swept = await SuppressionUpkeep(store).run_once()
    assert swept.discarded == 1_202
    left = {app_id: len(await store.suppressions.page(app_id, limit=10)) for app_id in "abcde"}
    assert left == {"a": 0, "b": 1, "c": 0, "d": 1, "e": 0}
    assert (await SuppressionUpkeep(store).run_once()).discarded == 0


async def test_where_there_are_none_nothing_is_looked_for(store: Store) -> None:
    assert (await SuppressionUpkeep(store).run_once()).discarded == 0
