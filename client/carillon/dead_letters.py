"""`client.dead_letters`: instants that were refused to the last attempt, to be tried again or given up."""

from collections.abc import AsyncGenerator
from datetime import datetime
from http import HTTPStatus

import msgspec
from msgspec import Struct

from carillon.addresses import path_of, query_of
from carillon.calls import M, Resource, call, listing
from carillon.paging import PAGE_SIZE, items

_EVERY = "/dead-letters"
_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})


class DeadLetter(Struct, frozen=True, kw_only=True):
    """An instant of the schedule with this key; `id` is its message id. `redacted` says that `error` is left out: the
    caller is a viewer."""

    id: str
    key: str
    due: datetime
    died_at: datetime
    attempts: int
    error: str
    redacted: bool = False


class _Retried(Struct, frozen=True):
    retried: int


_page = msgspec.json.Decoder(list[DeadLetter])
_retried = msgspec.json.Decoder(_Retried)


class DeadLetters(Resource[M]):
    """The caller's own dead letters, or as an admin those of another `namespace`. All methods raise `CarillonError`."""

    @listing
    def list(
        self, *, key: str = "", namespace: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[DeadLetter]:
        """All of them, or those of one key; read page by page."""
        query = query_of(key=key, namespace=namespace)
        return items(self._transport, _EVERY, query, _page, limit=limit, page_size=page_size)

    @call
    async def retry(self, id: str, *, namespace: str = "") -> None:
        """Try one again, with what its schedule says now. Raises `NotFound`, `Conflict` if its schedule is gone."""
        query = query_of(namespace=namespace)
        await self._transport.call("POST", f"{_one(id)}/retry", query=query, done_before=_GONE)

    @call
    async def discard(self, id: str, *, namespace: str = "") -> None:
        """Give one up. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        await self._transport.call("POST", f"{_one(id)}/discard", query=query, done_before=_GONE)

    @call
    async def retry_all(self, *, key: str = "", namespace: str = "") -> int:
        """Try all of them again, or those of one key: how many. Those whose schedules are gone stay.

        None is tried twice; but after an attempt whose answer was lost, those that it dealt with are not counted.
        """
        content = msgspec.json.encode({"key": key} if key else {})
        query = query_of(namespace=namespace)
        answer = await self._transport.call("POST", f"{_EVERY}/retry", query=query, content=content)
        return answer.read(_retried).retried


def _one(id: str) -> str:
    return _EVERY + path_of(id)
