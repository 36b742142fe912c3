"""A process works on a database only if that was set up, and if no later release has shut it out."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.wiring import process
from services.wiring.process import SchemaWatch
from shared.core.documents import OLDEST, VERSION, Stamp, TooOld
from shared.core.errors import Unavailable
from shared.store import Store

pytestmark = pytest.mark.native


@pytest.fixture
async def store(mongo_database: str) -> AsyncIterator[Store]:
    store = Store.open(mongo_database)
    yield store
    await store.close()


async def shut_out(store: Store) -> None:
    """Do as the `init` of a later release does."""
    await store._database["meta"].update_one({"_id": "schema"}, {"$set": {"oldest": VERSION + 1}})


@pytest.mark.parametrize("stamped", [[], [{"_id": "schema", "version": VERSION - 1, "oldest": OLDEST}]])
async def test_a_process_is_ready_once_the_init_of_its_own_release_has_run(
    store: Store, stamped: list[dict[str, Any]]
) -> None:
    """Be it that nobody has run one, or that of an earlier release."""
    for document in stamped:
        await store._database["meta"].insert_one(document)
    watch = SchemaWatch(store.schema)
    await watch.start()
    with pytest.raises(Unavailable, match="carillon init of this release has not been run"):
        await watch.check()
    await store.schema.setup()
    await watch.check()
    await watch.stop()


async def test_the_stamp_of_a_later_release_stays(store: Store) -> None:
    await store.schema.setup()
    assert await store.schema.read() == Stamp(VERSION, OLDEST)
    later = {"version": VERSION + 2, "oldest": OLDEST, "of_a_later_version": 1}
    await store._database["meta"].replace_one({"_id": "schema"}, later)
    await store.schema.setup()
    assert await store.schema.read() == Stamp(VERSION + 2, OLDEST)
    watch = SchemaWatch(store.schema)
    await watch.start()
    await watch.check()
    await watch.stop()


async def test_a_later_release_ends_a_process_that_it_shuts_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_KNOWN_SECONDS", 0.01)
    await store.schema.setup()
    watch = SchemaWatch(store.schema)
    await watch.start()
    await shut_out(store)
    with pytest.raises(TooOld, match="run a newer release"):
        await asyncio.wait_for(watch.wait(), 50)
    with pytest.raises(TooOld):
        await SchemaWatch(store.schema).start()
