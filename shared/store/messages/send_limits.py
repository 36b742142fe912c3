"""The rate limit of a namespace's single messages: the generic cell rate algorithm in one update of one document, exact
over all processes.

`next_us` is the time at which the last granted message would be due at the namespace's rate. It may be ahead by at most
the `burst`.
"""

from datetime import datetime
from typing import Any

from msgspec import Struct
from pymongo import ReturnDocument
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import EPOCH
from shared.store.documents import Aggregate, Document, make

_SECOND = 1_000_000


class Granted(Struct, frozen=True):
    """The granted number of messages, and the seconds until the next one."""

    count: int
    wait_seconds: float


class SendLimits(Aggregate):
    """The collection `callers`."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._callers = database["callers"]

    async def setup(self) -> None:
        await make(self._callers)

    async def take(self, namespace: str, count: int, *, rate: float, now: datetime) -> Granted:
        """Grant up to `count` messages at `rate` a second; at most one second's worth at once."""
        interval = round(_SECOND / rate)
        burst = max(int(rate), 1) * interval
        at = int((now - EPOCH).total_seconds() * 1_000) * 1_000
        # A corrected clock that was ahead delays no messages beyond the burst.
        free: Document = {"$min": [{"$max": [{"$ifNull": ["$next_us", 0]}, at]}, at + burst]}
        room: Document = {"$floor": {"$divide": [{"$subtract": [at + burst, free]}, interval]}}
        granted: Document = {"$max": [{"$min": [count, room]}, 0]}
        steps: list[Document] = [
            {"$set": {"free_us": free, "granted": granted}},
            {"$set": {"next_us": {"$add": ["$free_us", {"$multiply": ["$granted", interval]}]}}},
        ]
        found: Any = await self._callers.find_one_and_update(
            {"_id": namespace}, steps, upsert=True, return_document=ReturnDocument.AFTER
        )
        wait = found["next_us"] - (at + burst - interval)
        return Granted(int(found["granted"]), max(wait, 0) / _SECOND)
