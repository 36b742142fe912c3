"""Apps: one document each, by an id that sorts by age."""

from pymongo import ASCENDING, ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.accounts import App
from shared.domain.errors import Conflict
from shared.store.documents import Codec, Document, translated

_codec = Codec(App)


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

    async def page(self, *, after: str = "", limit: int) -> list[App]:
        """The apps whose ids follow `after`, the oldest first."""
        cursor = self._apps.find({"_id": {"$gt": after}}).sort("_id", ASCENDING).limit(limit)
        return [app async for app in _codec.values(cursor)]

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
