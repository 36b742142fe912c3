"""The stamp of the database: the versions of Carillon that may work on it."""

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.schema import OLDEST, VERSION, Stamp
from shared.store.documents import Aggregate, Document

_ID = "schema"


class Schema(Aggregate):
    """The `meta` collection, with one document: `{_id: "schema", version, oldest}`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._meta = database["meta"]

    async def setup(self) -> None:
        """Record this version; a later version stays."""
        await self._meta.update_one({"_id": _ID}, {"$max": {"version": VERSION, "oldest": OLDEST}}, upsert=True)

    async def read(self) -> Stamp | None:
        """The stamp; `None` if the database was never set up."""
        found = await self._meta.find_one({"_id": _ID})
        return None if found is None else Stamp(found["version"], found["oldest"])
