"""Apps: one document each, by an id that sorts by age."""

from collections.abc import Sequence

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts import App
from shared.domain.errors import Conflict
from shared.store.documents import Codec, Document, Page, insert_new, read_page, replace_unchanged, translated, with_ids

_codec = Codec(App)
_BATCH = 1_000  # of less than a kilobyte each


def _taken() -> Conflict:
    return Conflict("another app has this bundleId (uix_apps_bundle_id)", field="bundleId")


class Apps:
    """The `apps` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._apps = database["apps"]

    async def setup(self) -> None:
        """Make the indexes."""
        await self._apps.create_index([("bundle_id", ASCENDING)], unique=True)

    async def add(self, app: App) -> None:
        """Insert an app.

        Raises:
            Conflict: another app has this bundle id.
        """
        with translated(duplicate=_taken):
            await self._apps.insert_one(_codec.document(app))

    async def get(self, app_id: str) -> App | None:
        """The app."""
        with translated():
            return _codec.maybe(await self._apps.find_one({"_id": app_id}))

    async def add_new(self, apps: Sequence[App]) -> set[int]:
        """Insert those whose ids and bundle ids are free: the positions of the others."""
        return await insert_new(self._apps, [_codec.document(app) for app in apps])

    async def with_ids(self, app_ids: Sequence[str]) -> dict[str, App]:
        """Those of these apps that there are, by id."""
        return await with_ids(self._apps, _codec, app_ids)

    async def ids_of(self, bundle_ids: Sequence[str]) -> dict[str, str]:
        """The ids of the apps with these bundle ids, by them."""
        with translated():
            found = await self._apps.find({"bundle_id": {"$in": list(bundle_ids)}}, {"bundle_id": 1}).to_list()
        return {document["bundle_id"]: document["_id"] for document in found}

    async def replace(self, old: App, new: App) -> bool:
        """Put the new app in the place of the old one; `False` when that was changed meanwhile.

        Raises:
            Conflict: another app has this bundle id.
        """
        return await replace_unchanged(self._apps, _codec.document(old), _codec.document(new), duplicate=_taken)

    async def page(self, *, after: str = "", limit: int) -> Page[App]:
        """The apps whose ids follow `after`, the oldest first."""
        query = {"_id": {"$gt": after}}
        return await read_page(self._apps, query, _codec.value, order=("_id",), limit=limit, batch=_BATCH)

    async def update(self, app_id: str, *, name: str, bundle_id: str, at: int) -> App | None:
        """Rename the app; `None` when there is none.

        Raises:
            Conflict: another app has this bundle id.
        """
        change = {"$set": {"name": name, "bundle_id": bundle_id, "updated_at": at}}
        with translated(duplicate=_taken):
            return _codec.maybe(
                await self._apps.find_one_and_update({"_id": app_id}, change, return_document=ReturnDocument.AFTER)
            )

    async def begin_removal(self, app_id: str) -> bool:
        """Let the app take nothing new from now on, for good; `False` when there is none."""
        with translated():
            return (await self._apps.update_one({"_id": app_id}, {"$set": {"going": True}})).matched_count == 1

    async def remove(self, app_id: str) -> bool:
        """Forget the app; `False` when there is none. What belongs to it is the caller's to remove first."""
        with translated():
            return (await self._apps.delete_one({"_id": app_id})).deleted_count == 1
