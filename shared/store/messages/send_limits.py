"""How many single messages a namespace may still send now: the generic cell rate algorithm, in one update of one
document, so that it is exact over all processes.

`next_us` is when the last message that was let through would be due at the namespace's rate. It may lie ahead by the
`burst`, and no further.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct
from pymongo import ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import EPOCH
from shared.store.documents import Document, make, translate_errors

_SECOND = 1_000_000


class Granted(Struct, frozen=True):
    """How many may go, and in how many seconds the next one may."""

    count: int
    wait_seconds: float


class SendLimits:
    """The collection `callers`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._callers = database["callers"]

    async def setup(self) -> None:
        """Make the collection."""
        await make(self._callers)

    async def take(self, namespace: str, count: int, *, rate: float, now: datetime) -> Granted:
        """Let through up to `count` at this many a second, as many at once as a second has of them. Raises
        `Unavailable`."""
        interval = round(_SECOND / rate)
        burst = max(int(rate), 1) * interval
        at = int((now - EPOCH).total_seconds() * 1_000) * 1_000
        # A clock that was ahead, and was put right, holds nobody back for longer.
        free: Document = {"$min": [{"$max": [{"$ifNull": ["$next_us", 0]}, at]}, at + burst]}
        room: Document = {"$floor": {"$divide": [{"$subtract": [at + burst, free]}, interval]}}
        granted: Document = {"$max": [{"$min": [count, room]}, 0]}
        steps: list[Document] = [
            {"$set": {"free_us": free, "granted": granted}},
            {"$set": {"next_us": {"$add": ["$free_us", {"$multiply": ["$granted", interval]}]}}},
        ]
        with translate_errors():
            found: Any = await self._callers.find_one_and_update(
                {"_id": namespace}, steps, upsert=True, return_document=ReturnDocument.AFTER
            )
        wait = found["next_us"] - (at + burst - interval)
        return Granted(int(found["granted"]), max(wait, 0) / _SECOND)
