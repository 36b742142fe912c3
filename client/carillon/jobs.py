"""`client.jobs` and `client.groups`: create, read, pause, resume and stop jobs, and localized pushes."""

import time
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Literal

from msgspec import Struct, field

from carillon.attempts import delay_seconds, query_of
from carillon.calls import CONFLICT, PAGE_SIZE, M, Resource, call, listing
from carillon.errors import error_of
from carillon.messages import Message, MessageJob
from carillon.push_jobs import Batch, JobPreview, PushJob, Rate, Samples, StoredJob, ZoneStart, join_names
from carillon.values import Instant, encode, written
from carillon.wire import Short

Move = Literal["pause", "resume", "stop"]
DRY_RUN = {"dryRun": "true"}


class MoveFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    """How many jobs would be moved. After a stop, `devices_not_reached` devices would get nothing, and `unplanned` jobs
    are not among these; `None` for other moves, and if they were not counted."""

    jobs: int
    devices_not_reached: int | None = None
    unplanned: int | None = None


_LIVELIEST = ("circuitbreak", "running", "paused", "scheduled", "failed", "stopped", "expired", "completed")


class ZoneJob(ZoneStart, frozen=True, kw_only=True, rename="camel"):
    """The job of one zone and its progress, in devices. `status`, `state` and `failure` are as those of a job.
    `devices` is known once the first zone has started."""

    status: str
    total_tokens: int
    completed_tokens: int
    failure: str
    completed_at_ns: int = field(name="completedAt")
    state: str = ""
    devices: int | None = None

    completed_at = Instant("When it was done; `None` until then.")


class Group(Short, frozen=True, kw_only=True, rename="camel"):
    """A localized push. `zones` are its jobs from west to east, and at the end that of users without a zone; the sums
    are those of all. `total_tokens` counts the devices of the zones that have started; `unknown` users of a file have
    no device. `warnings` are probable mistakes, for people. `redacted` says that what went wrong is left out, and
    `warnings` too, because the caller is a viewer."""

    id: str
    app_id: str
    template_name: str
    past_time_strategy: str
    total_tokens: int
    completed_tokens: int
    sent: int
    failed: int
    skipped: int
    held_out: int
    unknown: int
    zones: tuple[ZoneJob, ...]
    created_by: str
    starts_at_ns: int = field(name="startsAt")
    created_at_ns: int = field(name="createdAt")
    name: str = ""
    redacted: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """The state of its liveliest job; `running` if some zones are done and others lie ahead."""
        states = {zone.state for zone in self.zones}
        liveliest = next((state for state in _LIVELIEST if state in states), "")
        return "running" if liveliest == "scheduled" and "completed" in states else liveliest

    starts_at = Instant("The time that the clocks of each zone show when its job starts, read in UTC.")
    created_at = Instant("When it was made.")


class Groups(Resource[M]):
    """The localized pushes of apps, by the `group_id` of any of their jobs. All methods raise `CarillonError`, and
    `NotFound` where there is none; a move leaves jobs alone whose status does not allow it."""

    @call
    async def get(self, app_id: str, group_id: str) -> Group:
        """The zones of a push, and the progress of all together."""
        return await self._get(Group, "apps", app_id, "groups", group_id)

    @call
    async def pause(self, app_id: str, group_id: str, *, reason: str = "") -> Group:
        """Hold all its jobs that have not ended."""
        return await self._move(app_id, group_id, "pause", reason)

    @call
    async def resume(self, app_id: str, group_id: str, *, reason: str = "") -> Group:
        """Let all its held jobs go on, or start when their start comes."""
        return await self._move(app_id, group_id, "resume", reason)

    @call
    async def stop(self, app_id: str, group_id: str, *, reason: str = "") -> Group:
        """End all its jobs for good."""
        return await self._move(app_id, group_id, "stop", reason)

    @call
    async def dry_run(self, app_id: str, group_id: str, move: Move) -> MoveFigures:
        """Figures of what a move would do; nothing is done."""
        return await self._put(MoveFigures, "apps", app_id, "groups", group_id, move, query=DRY_RUN)

    async def _move(self, app_id: str, group_id: str, move: Move, reason: str) -> Group:
        return await self._put(Group, "apps", app_id, "groups", group_id, move, reason=reason)


RetriedState = Literal["failed", "unsent", "unknown"]
_FORBIDDEN = frozenset({int(HTTPStatus.FORBIDDEN)})
_STATUS = {"pause": "paused", "resume": "", "stop": "stopped"}


class Jobs(Resource[M]):
    """The jobs of apps. All methods raise `CarillonError`."""

    @call
    async def create(
        self, app_id: str, job: PushJob | MessageJob, *, idempotency_key: str = "", reason: str = ""
    ) -> StoredJob:
        """Create a job, which starts at once or at its `starts_at`. A repeated `idempotency_key` returns the job that
        it created. The answer for a localized push is the job of the last zone, with all `zones`; `client.groups` takes
        its `group_id`.

        Raises:
            Invalid: a field breaks a rule, or there is no such app or template.
            Conflict: the app is being deleted, the job's id is taken, or its credential sends nothing now.
        """
        return await self._post(
            StoredJob,
            "apps",
            app_id,
            "jobs",
            query=job.query(),
            content=job.encoded(),
            idempotency_key=idempotency_key,
            reason=reason,
        )

    @call
    async def preview(self, app_id: str, job: PushJob | MessageJob) -> JobPreview:
        """The recipients of a job, and samples of its messages. Nothing is stored or sent. Raises as `create`, and
        `NotFound` if there is no such app."""
        return await self._post(JobPreview, "apps", app_id, "jobs", "preview", query=job.query(), content=job.encoded())

    @call
    async def get(self, app_id: str, job_id: str, *, exact: bool = False) -> StoredJob:
        """A job and its progress; what is told of its messages is up to a second old, unless it must be `exact`. Raises
        `NotFound`."""
        return await self._get(StoredJob, "apps", app_id, "jobs", job_id, query=query_of(exact="true" if exact else ""))

    @call
    async def wait(self, job: StoredJob, *, timeout: float) -> StoredJob:
        """The job once it has ended; its `state` says how. It is read at growing intervals, of 10 s at most. A
        localized push has a job for each zone: read all of them by `client.groups`.

        Raises:
            TimeoutError: the job has not ended within `timeout` seconds. It goes on.
            NotFound: there is no such job any more.
        """
        until, looks = time.monotonic() + timeout, 0
        while True:
            seen = await self._get(StoredJob, "apps", job.app_id, "jobs", job.id)
            if seen.ended:
                return seen
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {job.id} has not ended after {timeout:g} s: it is {seen.state or 'underway'}")
            looks += 1
            await self._transport.runtime.sleep(min(delay_seconds(looks, 1.0), left))

    @listing
    def list(
        self,
        app_id: str,
        *,
        template: str | Sequence[str] = (),
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[StoredJob]:
        """The app's jobs, newest first, or those with exactly this `template`, or these; read page by page.
        Their `context` is left empty: `get` has it."""
        query = query_of(app=app_id, template=join_names(template))
        return self._list(list[StoredJob], "jobs", query=query, limit=limit, page_size=page_size)

    @listing
    def list_all(
        self,
        *,
        app_id: str = "",
        status: str = "",
        template: str | Sequence[str] = (),
        by: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        grouped: bool = False,
        limit: int | None = None,
        page_size: int = PAGE_SIZE,
    ) -> AsyncGenerator[StoredJob]:
        """The jobs of all apps that the caller may see, newest first, or only those of one app, in this `status`,
        with exactly this `template`, or these, made `by` this user or token, from `since` on and before `until`; read
        page by page. If `grouped`, a localized push is one job. Their `context` is left empty: `get` has it.
        Raises `ValueError` for times without a time zone."""
        query = query_of(
            app=app_id,
            status=status,
            template=join_names(template),
            by=by,
            since=written(since, "since") if since else "",
            until=written(until, "until") if until else "",
            grouped="true" if grouped else "",
        )
        return self._list(list[StoredJob], "jobs", query=query, limit=limit, page_size=page_size)

    @listing
    def batches(
        self, app_id: str, job_id: str, *, state: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[Batch]:
        """The batches of a job in their order, or only those in this `state`; read page by page."""
        query = query_of(state=state)
        return self._list(
            list[Batch], "apps", app_id, "jobs", job_id, "batches", query=query, limit=limit, page_size=page_size
        )

    @listing
    def messages(
        self, app_id: str, job_id: str, *, state: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[Message]:
        """The messages of a job in the order of its audience, or only those in this `state`; read page by page. Those
        that no worker has called are not among them."""
        query = query_of(state=state)
        return self._list(
            list[Message], "apps", app_id, "jobs", job_id, "messages", query=query, limit=limit, page_size=page_size
        )

    @call
    async def read_rate(self, app_id: str, job_id: str) -> Rate:
        """How fast a job was, from its start on. Raises `NotFound`."""
        return await self._get(Rate, "apps", app_id, "jobs", job_id, "rate")

    @call
    async def read_samples(self, app_id: str, job_id: str) -> Samples:
        """The records that a job's templates make, as in a preview. Raises `NotFound`."""
        return await self._get(Samples, "apps", app_id, "jobs", job_id, "samples")

    @call
    async def dry_run(self, app_id: str, job_id: str, move: Move) -> MoveFigures:
        """Figures of what a move would do; nothing is done. Raises as `pause`."""
        return await self._put(MoveFigures, "apps", app_id, "jobs", job_id, move, query=DRY_RUN)

    @call
    async def pause(self, app_id: str, job_id: str, *, reason: str = "") -> StoredJob:
        """Hold a job: nothing more is sent until it is resumed. Raises `NotFound`, and `Conflict` if its status
        does not allow it."""
        return await self._move(app_id, job_id, "pause", reason)

    @call
    async def resume(self, app_id: str, job_id: str, *, reason: str = "") -> StoredJob:
        """Let a job go on. Raises as `pause`."""
        return await self._move(app_id, job_id, "resume", reason)

    @call
    async def stop(self, app_id: str, job_id: str, *, reason: str = "") -> StoredJob:
        """End a job for good. Raises as `pause`."""
        return await self._move(app_id, job_id, "stop", reason)

    @call
    async def retry(
        self, app_id: str, job_id: str, *, states: Sequence[RetriedState] = ("failed",), reason: str = ""
    ) -> StoredJob:
        """Send messages of a job again that has ended: those in these states. Raises `NotFound`, and `Conflict` where
        it has not ended, has no such messages, or they are forgotten."""
        content = encode({"states": list(states)})
        answer = await self._call(
            "POST", "apps", app_id, "jobs", job_id, "retry", content=content, reason=reason, done_before=CONFLICT
        )
        if answer.status not in CONFLICT:
            return answer.read(StoredJob)
        # After an attempt whose answer was lost, a job that runs has been taken up again.
        refused = error_of(answer.status, answer.content)
        if refused.field != "status":
            raise refused
        return await self._get(StoredJob, "apps", app_id, "jobs", job_id)

    @call
    async def delete(self, app_id: str, job_id: str, *, reason: str = "") -> None:
        """Delete a job that has ended, with all that is stored of it; where there is much, the server goes on with it
        after its answer, and the job is there until then. Its `idempotency_key` is forgotten: the same `create` sends
        the job again. Raises `NotFound`, `Conflict` where it has not ended."""
        await self._delete("apps", app_id, "jobs", job_id, reason=reason)

    async def _move(self, app_id: str, job_id: str, move: Move, reason: str) -> StoredJob:
        """The second of two moves is forbidden: after an attempt whose answer was lost, the status of the job tells."""
        path = ("apps", app_id, "jobs", job_id)
        answer = await self._call("PUT", *path, move, reason=reason, done_before=_FORBIDDEN)
        return await self._settle_move(
            StoredJob, *path, answer=answer, is_moved=lambda job: job.status == _STATUS[move]
        )
