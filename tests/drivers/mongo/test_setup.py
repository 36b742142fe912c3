"""What `carillon init` makes is all that anything needs: no first use finds a collection missing."""

from typing import Any

from pymongo import AsyncMongoClient, WriteConcern
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from shared.audience.rules.audiences import ByteRange, File
from shared.drivers.mongo.documents import Document
from shared.store import Store
from tests.jobs.made import added


class Indexing(CommandListener):
    """Notes what the server is asked to index."""

    def __init__(self) -> None:
        self.commands: list[Any] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.command_name == "createIndexes":
            self.commands.append(event.command)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Nothing is asked of it."""

    def failed(self, event: CommandFailedEvent) -> None:
        """It shows where it is waited for."""


async def test_a_plan_that_was_begun_and_never_cut_can_be_forgotten(store: Store) -> None:
    """As when an app is deleted on a fresh folder before any file was read."""
    await store.files.begin("plan", File("bucket/users.csv", size=1, version="1"), cut_records=10)
    await store.files.remove_of(["plan", "never-begun"])
    assert await store.files.plan("plan") is None


async def test_an_index_may_take_as_long_as_it_takes_and_a_collection_is_read_once_for_all(mongo_database: str) -> None:
    """A deadline would end the building of an index of millions of documents, and lose what is done of it."""
    asked = Indexing()
    client: AsyncMongoClient[Document] = AsyncMongoClient(mongo_database, timeoutMS=20_000, event_listeners=[asked])
    database = client.get_default_database().with_options(write_concern=WriteConcern("majority"))
    await Store(client, database).setup()
    await client.close()
    assert asked.commands
    assert not any("maxTimeMS" in command for command in asked.commands)
    first: dict[str, Any] = {}
    for command in asked.commands:
        made = first.setdefault(command["createIndexes"], command)
        assert made.get("commitQuorum") == "majority", made
        names = {index["name"] for index in made["indexes"]}
        assert {index["name"] for index in command["indexes"]} <= names


async def test_every_collection_is_there_before_its_first_document(store: Store) -> None:
    before = set(await store._database.list_collection_names())
    job_id = await added(store)
    await store.files.begin("plan", File("bucket/users.csv", size=1, version="1"), cut_records=10)
    await store.files.add_page("plan", 0, [ByteRange(0, 1, 1)])
    await store.imports.note("jobs", {job_id: "digest"})
    assert set(await store._database.list_collection_names()) == before


async def test_setting_up_again_changes_nothing(store: Store) -> None:
    await store.files.begin("plan", File("bucket/users.csv", size=1, version="1"), cut_records=10)
    before = sorted(await store._database.list_collection_names())
    await store.setup()
    assert sorted(await store._database.list_collection_names()) == before
    assert await store.files.ids(after="", limit=10) == ["plan"]
