"""Whatever a test does to its database, the next one that has it finds it as `carillon init` leaves one."""

from shared.store import Store
from tests.jobs.made import added
from tests.ready_databases import ReadyDatabases


async def test_what_a_test_leaves_is_gone(ready_databases: ReadyDatabases) -> None:
    with ready_databases.lend() as first:
        store = Store.open(first)
        await added(store)
        await store._database["jobs"].drop_index("group_id_1")
        await store._database.drop_collection("imports")
        await store._database["meta"].delete_many({})
        await store._database["strange"].insert_one({})
        await store.close()
    for _ in range(10):
        with ready_databases.lend() as url:
            again = url == first
            store = Store.open(url)
            names = await store._database.list_collection_names()
            assert "imports" in names
            assert "strange" not in names
            assert "group_id_1" in await store._database["jobs"].index_information()
            assert await store._database["jobs"].count_documents({}) == 0
            assert await store._database["meta"].distinct("_id") == ["schema"]
            await store.close()
        if again:
            return
    raise AssertionError("it never comes back")
