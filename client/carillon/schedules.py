"""`client.schedules`: make, replace, read, pause, fire and delete schedules."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping
from datetime import datetime
from http import HTTPStatus

from msgspec import Struct
from msgspec.structs import replace

from carillon.addresses import query_of
from carillon.bulk import results
from carillon.calls import M, Resource, call, listing
from carillon.definitions import BulkResult, DueInstants, Fired, Schedule, ScheduleState, StoredSchedule
from carillon.encoding import read_decimal
from carillon.instants import written
from carillon.paging import PAGE_SIZE
from carillon.transport import Answer


class _Preview(Struct, frozen=True):
    next: tuple[datetime, ...]


class Schedules(Resource[M]):
    """The caller's own schedules. All methods raise `CarillonError`, and `ValueError` for a key that cannot be one.

    An admin names another `namespace` to see and move what somebody else has scheduled: `token:<id>` or
    `user:<e-mail address>`. From others that is `Forbidden`.
    """

    _floats = staticmethod(read_decimal)

    @call
    async def create(self, schedule: Schedule, *, idempotency_key: str = "", reason: str = "") -> StoredSchedule:
        """Make a schedule; one that is there with the same content stays as it is.

        Raises:
            Conflict: the key has another content.
            Invalid: a field breaks a rule, or no instant lies ahead.
        """
        answer = await self._call(
            "POST", "schedules", content=schedule.encoded(), idempotency_key=idempotency_key, reason=reason
        )
        return _made(answer)

    @call
    async def put(self, key: str, schedule: Schedule, *, reason: str = "") -> StoredSchedule:
        """Make a schedule, or replace all that is pending of it; the same content changes nothing. The schedule may
        leave its key out. Raises `Invalid`."""
        return _made(await self._call("PUT", "schedules", key, content=schedule.encoded(), reason=reason))

    @call
    async def get(self, key: str, *, namespace: str = "") -> StoredSchedule:
        """A schedule with its next instants and its last outcomes. Raises `NotFound`."""
        return await self._get(StoredSchedule, "schedules", key, query=query_of(namespace=namespace))

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
        return self._list(list[StoredSchedule], "schedules", query=query, limit=limit, page_size=page_size)

    @call
    async def find_due(self, *, within_seconds: int | None = None, namespace: str = "") -> DueInstants:
        """The instants that fire next, at most `within_seconds` from now, by default within a day. `*` means all
        namespaces."""
        query = query_of(namespace=namespace, within="" if within_seconds is None else str(within_seconds))
        return await self._get(DueInstants, "schedules", "due", query=query)

    @call
    async def delete(self, key: str, *, namespace: str = "", reason: str = "") -> None:
        """Delete a schedule and all that is pending of it. Raises `NotFound`."""
        await self._delete("schedules", key, query=query_of(namespace=namespace), reason=reason)

    @call
    async def cancel(self, key: str, instant: datetime, *, namespace: str = "", reason: str = "") -> None:
        """Take one pending instant out of a list, named as it was given or as it was delayed.

        Raises:
            NotFound: nothing is pending then.
            Conflict: it belongs to a recurrence.
            ValueError: the instant has no time zone.
        """
        query = query_of(namespace=namespace)
        await self._delete("schedules", key, "occurrences", written(instant, "instant"), query=query, reason=reason)

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
        query = query_of(namespace=namespace)
        return await self._post(
            Fired, "schedules", key, "fire", query=query, idempotency_key=idempotency_key, reason=reason
        )

    @call
    async def preview(self, schedule: Schedule) -> tuple[datetime, ...]:
        """The next 20 instants of a schedule, which is not made; its key, if it has one, tells its delay in the
        window. Raises `Invalid`."""
        return (await self._post(_Preview, "schedules", "preview", content=schedule.encoded())).next

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
        query = query_of(namespace=namespace)
        return await self._post(StoredSchedule, "schedules", key, move, query=query, reason=reason)


def _made(answer: Answer) -> StoredSchedule:
    return replace(answer.read(StoredSchedule, read_decimal), created=answer.status == HTTPStatus.CREATED)
