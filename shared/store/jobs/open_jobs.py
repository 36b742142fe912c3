"""Jobs with something left to do, counted by their status."""

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.jobs.jobs import TRANSITIONS
from shared.store.documents import Document, translate_errors

MOST_COUNTED = 100_000


class OpenJobs:
    """The open ones in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        """Nothing to make: the index that upkeep uses serves here too."""

    async def count(self) -> dict[str, int]:
        """How many there are of each status, up to `MOST_COUNTED`."""
        with translate_errors():
            return {
                status.value: await self._jobs.count_documents(
                    {"open": True, "status": status.value}, limit=MOST_COUNTED
                )
                for status in TRANSITIONS
            }
