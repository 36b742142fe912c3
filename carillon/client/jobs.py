"""`client.jobs`: start push jobs, watch them, and pause, resume or stop them."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from carillon.client.errors import error_of
from carillon.client.instants import from_nanoseconds, nanoseconds
from carillon.client.paging import PAGE_SIZE, items
from carillon.client.transport import Transport, path_of

_FORBIDDEN = frozenset({int(HTTPStatus.FORBIDDEN)})
_STATUS = {"pause": "paused", "resume": "", "stop": "stopped"}


class PushJob(Struct, frozen=True, kw_only=True):
    """A push job to be started: whom (`filters` by column; none: everybody), what (the names of `templates`; of
    several, each device gets one) and when (at once without `starts_at`). What is not sent by `expires_at` is dropped.

    Raises:
        ValueError: an instant has no time zone.
    """

    service: Literal["apns", "gcm"]
    templates: Sequence[str]
    filters: Mapping[str, str] = {}
    context: Mapping[str, Any] = {}
    metadata: Mapping[str, Any] = {}
    starts_at: datetime | None = None
    expires_at: datetime | None = None
    id: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.templates, str):
            raise ValueError(f"templates is a sequence of names, not {self.templates!r}")  # noqa: TRY004 - as instants
        self._times()

    def encoded(self) -> bytes:
        """The body of a request."""
        given = {"service": self.service, "filters": self.filters, "context": self.context, "metadata": self.metadata}
        return msgspec.json.encode(given | self._times() | ({"id": self.id} if self.id else {}))

    def _times(self) -> dict[str, int]:
        return {
            "startsAt": nanoseconds(self.starts_at, "starts_at"),
            "expiresAt": nanoseconds(self.expires_at, "expires_at"),
        }


class StoredJob(Struct, frozen=True, kw_only=True, rename="camel"):
    """A push job and its progress: `completed_tokens` of `total_tokens` devices, which are `sent`, `failed`, `skipped`
    or `held_out`. `status` is `paused`, `circuitbreak`, `stopped`, or empty: waiting, running or completed. `failure`
    says what stopped a job that no user stopped."""

    id: str
    app_id: str
    service: str
    template_name: str
    status: str
    total_batches: int
    completed_batches: int
    total_tokens: int
    completed_tokens: int
    sent: int
    failed: int
    skipped: int
    held_out: int
    reasons: dict[str, int]
    locales: dict[str, int]
    feedbacks: dict[str, int]
    failure: str
    filters: dict[str, str]
    context: dict[str, Any]
    metadata: dict[str, Any]
    created_by: str
    starts_at_ns: int = field(name="startsAt")
    expires_at_ns: int = field(name="expiresAt")
    completed_at_ns: int = field(name="completedAt")
    created_at_ns: int = field(name="createdAt")
    updated_at_ns: int = field(name="updatedAt")

    @property
    def starts_at(self) -> datetime | None:
        """When it was to start; `None`: at once."""
        return from_nanoseconds(self.starts_at_ns)

    @property
    def expires_at(self) -> datetime | None:
        """When what is left of it is dropped."""
        return from_nanoseconds(self.expires_at_ns)

    @property
    def completed_at(self) -> datetime | None:
        """When it was done; `None` until then."""
        return from_nanoseconds(self.completed_at_ns)

    @property
    def created_at(self) -> datetime | None:
        """When it was made."""
        return from_nanoseconds(self.created_at_ns)

    @property
    def updated_at(self) -> datetime | None:
        """When its status changed last."""
        return from_nanoseconds(self.updated_at_ns)


_job = msgspec.json.Decoder(StoredJob)
_page = msgspec.json.Decoder(list[StoredJob])


class Jobs:
    """The push jobs of apps. All methods raise `CarillonError`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def start(self, app_id: str, job: PushJob, *, idempotency_key: str = "") -> StoredJob:
        """Make a job, which starts at once or at its `starts_at`; the job of before for a key that was used for it.

        Raises:
            Invalid: a field breaks a rule, or there is no such app or template.
            Conflict: the app is being deleted, or the job's id is taken.
        """
        answer = await self._transport.call(
            "POST",
            _of(app_id),
            query={"template": ",".join(job.templates)},
            content=job.encoded(),
            idempotency_key=idempotency_key,
        )
        return answer.read(_job)

    async def get(self, app_id: str, job_id: str) -> StoredJob:
        """A job and its progress. Raises `NotFound`."""
        return (await self._transport.call("GET", _of(app_id, job_id))).read(_job)

    def list(
        self, app_id: str, *, templates: Sequence[str] = (), page_size: int = PAGE_SIZE
    ) -> AsyncIterator[StoredJob]:
        """The app's jobs, the oldest first, or those with exactly these templates; read page by page."""
        query = {"template": ",".join(templates), "limit": str(page_size)}
        return items(self._transport, _of(app_id), {name: text for name, text in query.items() if text}, _page)

    async def pause(self, app_id: str, job_id: str) -> StoredJob:
        """Hold a job: nothing more is sent until it is resumed. Raises `NotFound`, `Forbidden` where its status does
        not allow it."""
        return await self._moved(app_id, job_id, "pause")

    async def resume(self, app_id: str, job_id: str) -> StoredJob:
        """Let a job go on. Raises as `pause`."""
        return await self._moved(app_id, job_id, "resume")

    async def stop(self, app_id: str, job_id: str) -> StoredJob:
        """End a job for good. Raises as `pause`."""
        return await self._moved(app_id, job_id, "stop")

    async def _moved(self, app_id: str, job_id: str, move: Literal["pause", "resume", "stop"]) -> StoredJob:
        """Of two moves the second is forbidden: after an attempt whose answer was lost, the job itself tells."""
        path = f"{_of(app_id, job_id)}/{move}"
        answer = await self._transport.call("PUT", path, done_before=_FORBIDDEN)
        if answer.status != HTTPStatus.FORBIDDEN:
            return answer.read(_job)
        job = await self.get(app_id, job_id)
        if job.status != _STATUS[move]:
            raise error_of(answer.status, answer.content)
        return job


def _of(app_id: str, *job_id: str) -> str:
    return path_of("apps", app_id, "jobs", *job_id)
