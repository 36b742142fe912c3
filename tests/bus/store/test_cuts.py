"""What is read of queues before they are cut."""

from typing import Any

import pytest

from shared.bus.store_log import chunk_document
from shared.store import Store
from tests.bus.store.made_chunks import add_chunks, listening
from tests.bus.store.made_subscriptions import chunk

pytestmark = pytest.mark.native

FEW = 64
DEEP, SMALL = (f"{number:032x}.g" for number in range(2))


async def bring(store: Store, queue: str, chunks: int) -> None:
    documents = [chunk_document(chunk(queue, ("0", number)), number, 0) for number in range(chunks)]
    await store._database["bus_chunks"].insert_many(documents)


async def test_the_heads_of_a_queue_are_its_first_chunks(store: Store) -> None:
    await bring(store, "a", 5)
    await bring(store, "b", 3)
    heads = await store.bus_cuts.read_heads(["b", "a"], limit=7)
    assert [(head.queue, head.n) for head in heads] == [("a", 1)] * 5 + [("b", 1)] * 2
    assert [head.id for head in heads] == sorted(head.id for head in heads)
    assert await store.bus_cuts.read_heads(["b"], limit=2) == heads[5:]


async def test_one_index_has_all_that_is_known_of_heads(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a server reads no chunk for them. (The one of these tests fetches what it sorts all the same.)"""
    collection: Any = store._database["bus_chunks"]
    asked, find = [], type(collection).find

    def note(self: Any, query: Any, fields: Any, **options: Any) -> Any:
        asked.append(fields)
        return find(self, query, fields, **options)

    monkeypatch.setattr(type(collection), "find", note)
    await store.bus_cuts.read_heads(["a"], limit=50)
    indexes = [[name for name, _ in index["key"]] for index in (await collection.index_information()).values()]
    assert [index for index in indexes if index[:2] == ["queue", "_id"] and {*asked[0]} <= {*index}]


async def test_heads_are_read_from_one_index_and_as_of_one_moment(store: Store, ready_database: str) -> None:
    await add_chunks(store, DEEP, 100)
    async with listening(ready_database) as (cuts, finds):
        for queues in ([DEEP], [DEEP, SMALL]):
            assert len(await cuts.read_heads(queues, limit=FEW)) == FEW
    indexes = (await store._database["bus_chunks"].index_information()).values()
    fields = [[field for field, _ in index["key"]] for index in indexes]
    # No other one has this order, so the server has no choice.
    (only,) = [one for one in fields if one[:2] == ["queue", "_id"]]
    for sent in finds.sent:
        assert {*sent["filter"], *sent["sort"], *sent["projection"]} <= {*only}
        assert all(sent["projection"].values())
        assert sent["readConcern"]["level"] == "snapshot"
        assert "hint" not in sent


async def test_reading_heads_examines_no_chunk(store: Store, ready_database: str) -> None:
    await add_chunks(store, DEEP, 100)
    async with listening(ready_database) as (cuts, finds):
        await cuts.read_heads([DEEP], limit=FEW)
    (sent,) = finds.sent
    asked = {name: sent[name] for name in ("find", "filter", "sort", "projection", "limit")}
    if await _documents_examined(store, {**asked, "projection": {"queue": 1, "_id": 0}}):
        pytest.xfail("this server reads a document for each key, even where it has all that is asked for")
    assert await _documents_examined(store, asked) == 0


async def _documents_examined(store: Store, asked: dict[str, Any]) -> int:
    told = await store._database.command({"explain": asked, "verbosity": "executionStats"})
    examined: int = told["executionStats"]["totalDocsExamined"]
    return examined
