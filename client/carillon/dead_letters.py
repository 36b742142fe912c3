"""`client.dead_letters`: occurrences that failed every attempt."""

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any

from msgspec import Struct

from carillon.attempts import query_of
from carillon.calls import GONE, PAGE_SIZE, M, Resource, call, listing
from carillon.values import encode, read_decimal
from carillon.wire.clock import DeadLetter, ErrorCount, WholeDeadLetter


class _Retried(Struct, frozen=True):
    retried: int


class DeadLetters(Resource[M]):
    """The caller's own dead letters, or those of another `namespace` over which the caller has a role (`*`, where one
    only looks: of all). All methods raise `CarillonError`."""

    _floats = staticmethod(read_decimal)

    @listing
    def list(
        self, *, key: str = "", namespace: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[DeadLetter[datetime]]:
        """All of them, or those of one key; read page by page."""
        query = query_of(key=key, namespace=namespace)
        return self._list(list[DeadLetter[datetime]], "dead-letters", query=query, limit=limit, page_size=page_size)

    @call
    async def get(self, id: str, *, namespace: str = "") -> WholeDeadLetter[datetime, Any]:
        """A dead letter, and what a retry would do now. Raises `NotFound`."""
        return await self._get(WholeDeadLetter[datetime, Any], "dead-letters", id, query=query_of(namespace=namespace))

    @call
    async def count_errors(self, *, key: str = "", namespace: str = "") -> tuple[ErrorCount[datetime], ...]:
        """The errors of the last dead letters, the most frequent first."""
        query = query_of(key=key, namespace=namespace)
        return await self._get(tuple[ErrorCount[datetime], ...], "dead-letters", "errors", query=query)

    @call
    async def retry(self, id: str, *, namespace: str = "", reason: str = "") -> None:
        """Try one again, with what its schedule says now. Raises `NotFound`, `Conflict` if its schedule is gone."""
        query = query_of(namespace=namespace)
        await self._call("POST", "dead-letters", id, "retry", query=query, reason=reason, done_before=GONE)

    @call
    async def discard(self, id: str, *, namespace: str = "", reason: str = "") -> None:
        """Give one up. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        await self._call("POST", "dead-letters", id, "discard", query=query, reason=reason, done_before=GONE)

    @call
    async def retry_all(self, *, key: str | None = None, namespace: str = "", reason: str = "") -> int:
        """Try all of them again, or those of one key: how many. Those whose schedules are gone stay.

        Over 500 are tried by a bulk action of the server, one page after the other: `client.bulk_actions.list` shows
        it. The number is that of its things then, with those that stay. Raises `Conflict` where too many such actions
        are underway.

        None is tried twice; but after an attempt whose answer was lost, those that it dealt with are not counted.
        """
        content = encode({} if key is None else {"key": key})
        query = query_of(namespace=namespace)
        return (
            await self._post(_Retried, "dead-letters", "retry", query=query, content=content, reason=reason)
        ).retried
