"""`client.schedules`: make, replace, read, pause, fire and delete schedules."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from datetime import datetime
from http import HTTPStatus

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from carillon.addresses import path_of, query_of
from carillon.bulk import results
from carillon.calls import M, Resource, call, listing
from carillon.definitions import BulkResult, DueInstants, Fired, Schedule, ScheduleState, StoredSchedule
from carillon.encoding import read_decimal
from carillon.instants import written
from carillon.paging import PAGE_SIZE, items
from carillon.transport import Answer

_EVERY = "/schedules"
_GONE = frozenset({int(HTTPStatus.NOT_FOUND)})


class _Preview(Struct, frozen=True):
    next: tuple[datetime, ...]


_schedule = msgspec.json.Decoder(StoredSchedule, float_hook=read_decimal)
_page = msgspec.json.Decoder(list[StoredSchedule], float_hook=read_decimal)
_preview = msgspec.json.Decoder(_Preview)
_due = msgspec.json.Decoder(DueInstants)
_fired = msgspec.json.Decoder(Fired)


class Schedules(Resource[M]):
    """The caller's own schedules. All methods raise `CarillonError`, and `ValueError` for a key that cannot be one.

    An admin names another `namespace` to see and move what somebody else has scheduled: `token:<id>` or
    `user:<e-mail address>`. From others that is `Forbidden`.
    """

    @call
    async def create(self, schedule: Schedule, *, idempotency_key: str = "", reason: str = "") -> StoredSchedule:
        """Make a schedule; one that is there with the same content stays as it is.

        Raises:
            Conflict: the key has another content.
            Invalid: a field breaks a rule, or no instant lies ahead.
        """
        answer = await self._transport.call(
            "POST", _EVERY, content=schedule.encoded(), idempotency_key=idempotency_key, reason=reason
        )
        return _made(answer)

    @call
    async def put(self, key: str, schedule: Schedule, *, reason: str = "") -> StoredSchedule:
        """Make a schedule, or replace all that is pending of it; the same content changes nothing. The schedule may
        leave its key out. Raises `Invalid`."""
        return _made(await self._transport.call("PUT", _one(key), content=schedule.encoded(), reason=reason))

    @call
    async def get(self, key: str, *, namespace: str = "") -> StoredSchedule:
        """A schedule with its next instants and its last outcomes. Raises `NotFound`."""
        return (await self._transport.call("GET", _one(key), query=query_of(namespace=namespace))).read(_schedule)

    @listing
    def list(
        self,
        *,
        prefix: str = "",
        state: ScheduleState | None = None,
        labels: Mapping[str, str] | None = None,
        namespace: str = "",
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[StoredSchedule]:
        """All schedules by key, or those whose key begins so, that are in this state, or that have all these labels;
        read page by page."""
        label = ",".join(f"{name}:{value}" for name, value in (labels or {}).items())
        query = query_of(prefix=prefix, state=state or "", label=label, namespace=namespace)
        return items(self._transport, _EVERY, query, _page, limit=limit, page_size=page_size)

    @call
    async def find_due(self, *, within_seconds: int | None = None, namespace: str = "") -> DueInstants:
        """The instants that fire next, at most `within_seconds` from now, by default within a day. `*` means all
        namespaces."""
        query = query_of(namespace=namespace, within="" if within_seconds is None else str(within_seconds))
        return (await self._transport.call("GET", f"{_EVERY}/due", query=query)).read(_due)

    @call
    async def delete(self, key: str, *, namespace: str = "", reason: str = "") -> None:
        """Delete a schedule and all that is pending of it. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        await self._transport.call("DELETE", _one(key), query=query, reason=reason, done_before=_GONE)

    @call
    async def cancel(self, key: str, instant: datetime, *, namespace: str = "", reason: str = "") -> None:
        """Take one pending instant out of a list, named as it was given or as it was delayed.

        Raises:
            NotFound: nothing is pending then.
            Conflict: it belongs to a recurrence.
            ValueError: the instant has no time zone.
        """
        path = f"{_one(key)}/occurrences{path_of(written(instant, 'instant'))}"
        query = query_of(namespace=namespace)
        await self._transport.call("DELETE", path, query=query, reason=reason, done_before=_GONE)

    @call
    async def pause(self, key: str, *, namespace: str = "", reason: str = "") -> StoredSchedule:
        """Hold a schedule: nothing of it fires until it is resumed. Raises `NotFound`, `Conflict` if it has
        finished."""
        return await self._move(key, "pause", namespace, reason)

    @call
    async def resume(self, key: str, *, namespace: str = "", reason: str = "") -> StoredSchedule:
        """Let a schedule go on; what came due meanwhile is dealt with by its misfire rule. Raises as `pause`."""
        return await self._move(key, "resume", namespace, reason)

    @call
    async def fire(self, key: str, *, namespace: str = "", idempotency_key: str = "", reason: str = "") -> Fired:
        """Have the callback done once, now, beside what is planned. Raises `NotFound`."""
        path, query = f"{_one(key)}/fire", query_of(namespace=namespace)
        answer = await self._transport.call("POST", path, query=query, idempotency_key=idempotency_key, reason=reason)
        return answer.read(_fired)

    @call
    async def preview(self, schedule: Schedule) -> tuple[datetime, ...]:
        """The next 20 instants of a schedule, which is not made; its key, if it has one, tells its delay in the
        window. Raises `Invalid`."""
        content = schedule.encoded()
        return (await self._transport.call("POST", f"{_EVERY}/preview", content=content)).read(_preview).next

    @listing
    def bulk(
        self,
        schedules: Iterable[Schedule] | AsyncIterable[Schedule],
        *,
        idempotency_key: str = "",
        reason: str = "",
    ) -> AsyncGenerator[BulkResult]:
        """Make many schedules: one result per item, in their order. A bad item does not spoil the others.

        They are taken from `schedules` and sent in chunks as the results are asked for, so their number is not
        bounded. An error that concerns a whole chunk is raised when the results of those before it have been given.
        """
        return results(self._transport, schedules, idempotency_key, reason)

    async def _move(self, key: str, move: str, namespace: str, reason: str) -> StoredSchedule:
        path, query = f"{_one(key)}/{move}", query_of(namespace=namespace)
        return (await self._transport.call("POST", path, query=query, reason=reason)).read(_schedule)


def _one(key: str) -> str:
    return _EVERY + path_of(key)


def _made(answer: Answer) -> StoredSchedule:
    return replace(answer.read(_schedule), created=answer.status == HTTPStatus.CREATED)
