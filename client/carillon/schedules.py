"""`client.schedules` and `client.calendars`: schedules, many at once too, and the days on which they do not fire."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from enum import StrEnum
from http import HTTPStatus
from itertools import count
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace

from carillon.attempts import query_of
from carillon.calls import PAGE_SIZE, M, Resource, call, listing
from carillon.files import each
from carillon.messages import MessageJob
from carillon.push_jobs import PushJob
from carillon.transport import NDJSON, Answer, Transport
from carillon.values import encode, in_utc, read_decimal, written
from carillon.wire import ItemError
from carillon.wire import clock as wire
from carillon.wire.clock import (
    Backfilled,
    BulkResult,
    DueInstants,
    Fired,
    HttpBody,
    HttpCallback,
    JobCallback,
    JobStartBody,
    KafkaBody,
    KafkaCallback,
    LeftOut,
    MovedSchedules,
    Outcome,
    RabbitBody,
    RabbitCallback,
    Request,
    Retry,
    SchedulePreview,
    StoredCalendar,
)


class ScheduleState(StrEnum):
    """The state of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    """Nothing of it is left to fire."""


class OutcomeResult(StrEnum):
    """How an attempt ended."""

    FIRED = "fired"
    FAILED = "failed"
    """It will be attempted again."""
    SKIPPED = "skipped"
    """It was late, or the job of an earlier instant was open: the schedule's rule skips it."""
    DEAD = "dead"
    """It was the last attempt: the instant is a dead letter."""


Callback = RabbitCallback | HttpCallback | KafkaCallback | JobCallback  # type: ignore[type-arg]  # of any payload
_BODIES = {RabbitCallback: RabbitBody, HttpCallback: HttpBody, KafkaCallback: KafkaBody, JobCallback: JobStartBody}
_STATES = frozenset(ScheduleState)
_ABSENT: tuple[object, ...] = (None, "", (), {}, Retry())


def job_callback(
    app_id: str,
    job: PushJob | MessageJob,
    *,
    overlap: Literal["skip", "queue", "allow"] = "skip",
    expires_after_seconds: float | None = None,
) -> JobCallback[Any]:
    """The callback that starts this job at each instant. The job must have no `id`, `starts_at` or `expires_at`."""
    return JobCallback(
        app_id=app_id,
        template=job.query()["template"],
        payload=msgspec.json.decode(job.encoded()),
        overlap=overlap,
        expires_after_seconds=expires_after_seconds,
    )


class Schedule(Request[datetime], frozen=True, kw_only=True):
    """A schedule to be made: exactly one of `instants` (up to 10,000), `cron` (five fields, in the IANA zone
    `timezone`, by default UTC), `every_seconds`, and an `anchor` with up to 1,000 `offsets` from it (`-90m` or a
    `timedelta`).

    `starts_at`, `ends_at` and `max_occurrences` bound a recurrence. `window_seconds` delays all instants of the key by
    the same time below it. `misfire` says what becomes of what is found late: fire, skip, or fire within some seconds.
    `key` has 1 to 255 of letters, digits and `- _ . ~ :`.

    Raises:
        ValueError: an instant has no time zone.
    """

    key: str = ""
    instants: Sequence[datetime] = field(default=(), name="schedules")
    offsets: Sequence[str | timedelta] = ()  # type: ignore[assignment]  # texts, once it is made
    callback: Callback

    def __post_init__(self) -> None:
        _convert_instants(self)
        force_setattr(self, "offsets", tuple(_offset_text(each) for each in self.offsets))

    def encoded(self) -> bytes:
        """The body of a request. Raises `TypeError` or `ValueError` where the payload has something that is not
        JSON."""
        fields = {each.encode_name: getattr(self, each.name) for each in msgspec.structs.fields(self)}
        given = {name: value for name, value in fields.items() if value not in _ABSENT}
        return encode(given | {"callback": _BODIES[type(self.callback)](self.callback)})


class StoredSchedule(wire.StoredSchedule[datetime, Any], frozen=True, kw_only=True):
    """A schedule as `carillon.wire.clock` describes it. Lists that an answer leaves out are empty. In the answer to
    create and put, `created` is true if this call made it, and false if it existed."""

    namespace: str = ""
    instants: Sequence[datetime] = field(default=(), name="schedules")
    next: tuple[datetime, ...] = ()
    skipped: tuple[datetime, ...] = ()
    outcomes: tuple[Outcome[datetime], ...] = ()
    redacted: bool = False
    created: bool = False

    def __post_init__(self) -> None:
        _convert_instants(self)
        if self.state in _STATES:
            force_setattr(self, "state", ScheduleState(self.state))


def _offset_text(offset: str | timedelta) -> str:
    if isinstance(offset, str):
        return offset
    if offset.microseconds:
        raise ValueError("an offset has whole seconds")
    return f"{int(offset.total_seconds())}s"


def _convert_instants(schedule: Schedule | StoredSchedule) -> None:
    instants = (in_utc(instant, f"instants[{index}]") for index, instant in enumerate(schedule.instants))
    force_setattr(schedule, "instants", tuple(instants))
    for bound in ("starts_at", "ends_at", "anchor"):
        if (instant := getattr(schedule, bound)) is not None:
            force_setattr(schedule, bound, in_utc(instant, bound))


ITEMS = 5_000  # the server takes twice as many
INSTANTS = 50_000  # what it stores in some seconds
BODY_BYTES = 8 * 2**20  # a quarter of what it takes
LARGEST_ITEM_BYTES = 2 * 2**20
"""A payload has at most 256 KiB and a list 10,000 instants: nothing that the server would accept is as large."""


class _Item(Struct, frozen=True):
    """A schedule that can be sent."""

    content: bytes
    instants: int


async def results(
    transport: Transport,
    schedules: Iterable[Schedule] | AsyncIterable[Schedule],
    idempotency_key: str,
    reason: str,
) -> AsyncGenerator[BulkResult]:
    """As `Schedules.bulk`. With a key of the caller's each chunk has one of its own, made of it."""
    index, numbers = 0, count()
    async for chunk in chunks(each(schedules, transport.runtime)):
        if isinstance(chunk, BulkResult):
            yield replace(chunk, index=index)
            index += 1
            continue
        key = f"{idempotency_key}/{next(numbers)}" if idempotency_key else ""
        answer = await transport.call(
            "POST",
            "/schedules/bulk",
            content=b"\n".join(chunk),
            content_type=NDJSON,
            idempotency_key=key,
            reason=reason,
        )
        for result in answer.read_lines(BulkResult, len(chunk)):
            yield replace(result, index=index + result.index)
        index += len(chunk)


async def chunks(schedules: AsyncIterable[Schedule]) -> AsyncGenerator[list[bytes] | BulkResult]:
    """Lines to be sent together, and in between the results of those that cannot be sent at all."""
    chunk: list[bytes] = []
    size = instants = 0
    async for schedule in schedules:
        item = _item(schedule)
        full = isinstance(item, _Item) and (
            len(chunk) == ITEMS or size + len(item.content) >= BODY_BYTES or instants + item.instants > INSTANTS
        )
        if chunk and (full or isinstance(item, BulkResult)):
            yield chunk
            chunk, size, instants = [], 0, 0
        if isinstance(item, BulkResult):
            yield item
            continue
        chunk.append(item.content)
        size += len(item.content) + 1
        instants += item.instants
    if chunk:
        yield chunk


def _item(schedule: Schedule) -> _Item | BulkResult:
    try:
        content = schedule.encoded()
    except (TypeError, ValueError) as error:
        return _refused(schedule, HTTPStatus.UNPROCESSABLE_ENTITY, f"it cannot be written as JSON: {error}")
    if len(content) > LARGEST_ITEM_BYTES:
        return _refused(schedule, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "it is larger than any schedule may be")
    return _Item(content, len(schedule.instants))


def _refused(schedule: Schedule, status: HTTPStatus, reason: str) -> BulkResult:
    return BulkResult(index=0, key=schedule.key or None, status=status, error=ItemError(reason))


class Schedules(Resource[M]):
    """The caller's own schedules. All methods raise `CarillonError`, and `ValueError` for a key that cannot be one.

    An admin names another `namespace` to see and move the schedules of another caller: `token:<id>` or
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
        read page by page. The namespace `*` means all, and takes no filter."""
        label = ",".join(f"{name}:{value}" for name, value in (labels or {}).items())
        query = query_of(prefix=prefix, state=state or "", label=label, namespace=namespace)
        return self._list(list[StoredSchedule], "schedules", query=query, limit=limit, page_size=page_size)

    @call
    async def find_due(self, *, within_seconds: int | None = None, namespace: str = "") -> DueInstants[datetime]:
        """The instants that fire next, at most `within_seconds` from now, by default within a day. `*` means all
        namespaces."""
        query = query_of(namespace=namespace, within="" if within_seconds is None else str(within_seconds))
        return await self._get(DueInstants[datetime], "schedules", "due", query=query)

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
    async def move(self, key: str, anchor: datetime, *, namespace: str = "", reason: str = "") -> StoredSchedule:
        """Move the anchor, and with it all that has not fired.

        Raises:
            NotFound: there is no such schedule.
            Conflict: it has finished.
            Invalid: it has no anchor.
            ValueError: the anchor has no time zone.
        """
        content = encode({"anchor": written(anchor, "anchor")})
        query = query_of(namespace=namespace)
        return await self._patch(StoredSchedule, "schedules", key, query=query, content=content, reason=reason)

    @call
    async def move_all(
        self,
        labels: Mapping[str, str],
        by: str | timedelta,
        *,
        namespace: str = "",
        idempotency_key: str = "",
        reason: str = "",
    ) -> MovedSchedules:
        """Move the anchors of all schedules that have all these labels, by `+1d`, `-90m` or a `timedelta`. A repeated
        `idempotency_key` moves none twice."""
        content = encode({"labels": [f"{name}:{value}" for name, value in labels.items()], "by": _offset_text(by)})
        query = query_of(namespace=namespace)
        return await self._post(
            MovedSchedules, "schedules", "move",
            query=query, content=content, idempotency_key=idempotency_key, reason=reason,
        )  # fmt: skip

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
    async def fire(
        self, key: str, *, namespace: str = "", idempotency_key: str = "", reason: str = ""
    ) -> Fired[datetime]:
        """Have the callback done once, now, beside what is planned. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        return await self._post(
            Fired[datetime], "schedules", key, "fire", query=query, idempotency_key=idempotency_key, reason=reason
        )

    @call
    async def backfill(
        self, key: str, since: datetime, until: datetime, *, namespace: str = "", reason: str = ""
    ) -> int:
        """Fire the instants between two past times, at most 10,000; returns how many. A backfill fires each of them
        once.

        Raises:
            NotFound: there is no such schedule.
            Conflict: another backfill of it is under way.
            Invalid: a time lies ahead, or there are too many instants.
        """
        content = encode({"from": written(since, "since"), "to": written(until, "until")})
        query = query_of(namespace=namespace)
        answer = await self._post(Backfilled, "schedules", key, "backfill", query=query, content=content, reason=reason)
        return answer.instants

    @call
    async def preview(self, schedule: Schedule) -> tuple[datetime, ...]:
        """The next 20 instants of a schedule, which is not made; its key, if it has one, tells its delay in the
        window. Raises `Invalid`."""
        return (await self._post(SchedulePreview[datetime], "schedules", "preview", content=schedule.encoded())).next

    @call
    async def find_left_out(self, schedule: Schedule) -> tuple[LeftOut[datetime], ...]:
        """The instants that the calendars of such a schedule leave out or shift, up to the last that `preview` shows.
        Raises `Invalid`."""
        preview = await self._post(SchedulePreview[datetime], "schedules", "preview", content=schedule.encoded())
        return preview.left_out or ()

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


class Calendars(Resource[M]):
    """The caller's own calendars, or those of another `namespace`: the days on which schedules do not fire. All methods
    raise `CarillonError`."""

    @listing
    def list(
        self, *, namespace: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[StoredCalendar[datetime]]:
        """All calendars by name; read page by page."""
        query = query_of(namespace=namespace)
        return self._list(list[StoredCalendar[datetime]], "calendars", query=query, limit=limit, page_size=page_size)

    @call
    async def get(self, name: str, *, namespace: str = "") -> StoredCalendar[datetime]:
        """A calendar. Raises `NotFound`."""
        return await self._get(StoredCalendar[datetime], "calendars", name, query=query_of(namespace=namespace))

    @call
    async def put(
        self, name: str, dates: Iterable[date], *, timezone: str = "UTC", reason: str = ""
    ) -> StoredCalendar[datetime]:
        """Make or replace a calendar of up to 1,000 dates. The schedules that exclude it follow within seconds. Raises
        `Invalid`."""
        content = encode({"dates": [each.isoformat() for each in dates], "timezone": timezone})
        return await self._put(StoredCalendar[datetime], "calendars", name, content=content, reason=reason)

    @call
    async def delete(self, name: str, *, namespace: str = "", reason: str = "") -> None:
        """Delete a calendar. Raises `NotFound`, and `Conflict` if a schedule excludes it."""
        await self._delete("calendars", name, query=query_of(namespace=namespace), reason=reason)
