"""What `carillon init` makes is all that anything needs: no first use finds a collection missing."""

from shared.domain.audience.ranges import ByteRange
from shared.domain.audience.sources import File
from shared.store import Store
from tests.store.made import added


async def test_a_plan_that_was_begun_and_never_cut_can_be_forgotten(store: Store) -> None:
    """As when an app is deleted on a fresh folder before any file was read."""
    await store.files.begin("plan", File("bucket/users.csv", size=1, version="1"), cut_records=10)
    await store.files.remove_of(["plan", "never-begun"])
    assert await store.files.plan("plan") is None


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
