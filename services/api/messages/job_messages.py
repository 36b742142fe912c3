"""`/apps/{appId}/jobs/{jobId}/messages`: the messages of a job, in pages or as an export; and `/retry`, which takes a
job up again after its end.
"""

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from litestar.response import Stream
from msgspec import Meta

from services.api.http import bodies, paging
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import Parameter, Resource, Route
from services.api.jobs.job_view import JobAnswers, JobView
from services.api.jobs.jobs import JOB, job_of
from services.api.jobs.moves import doer_of
from services.api.messages.messages import MessageView, as_csv, as_ndjson, csv_header, message_view
from shared.core.errors import Invalid
from shared.jobs.rules.jobs import Job, split_key
from shared.messages.figures import MessageFigures
from shared.messages.kind import JobRetry
from shared.messages.rules.jobs import MESSAGE_SERVICE
from shared.messages.rules.ledger import MessageState
from shared.messages.store_jobs import MessageSource
from shared.store import Store

CSV, NDJSON = "text/csv", "application/x-ndjson"
UNSENT_HEADER = "x-carillon-unsent"
_PAGE = 2_000
_STATE = Parameter(
    name="state", description="Only those in this state.", schema={"type": "string", "enum": [*MessageState]}
)
_Write = Callable[[Sequence[MessageView]], bytes]
_NOT_WANTED = re.compile(r"q\s*=\s*0(\.0*)?")
_EXPORTS: dict[str, _Write] = {CSV: as_csv, NDJSON: as_ndjson}


class JobMessagesResource(Resource):
    def __init__(self, store: Store, figures: MessageFigures) -> None:
        self._store = store
        self._figures = figures

    @Route(
        "GET", JOB + "/messages",
        summary="List the messages of a job in the order of its audience: a page, or as `text/csv` or "
                "`application/x-ndjson` (`Accept`) all of them, behind the `cursor`, which may then also be the id of "
                "the last message that was read. Messages that no worker has called are left out; of an export, the "
                f"header `{UNSENT_HEADER}` counts them.",
        who=VIEW_APP, answers={HTTPStatus.OK: list[MessageView]}, problems=(HTTPStatus.NOT_FOUND,),
        parameters=(_STATE,), paged=True, exports=(CSV, NDJSON),
    )  # fmt: skip
    async def list_job_messages(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[Any]:
        state = paging.read_choice(request, "state", MessageState)
        _, job = await job_of(self._store, app_id, job_id)
        personal, export = sees_personal_data(request), _export_of(request)
        if export:
            return await self._export(job, state, _read_position(request), export, personal=personal)
        asked = paging.read_page(request, str)
        found = await self._store.message_lists.page(
            split_key(job.key)[1], state=state, after=asked.after or "", limit=asked.limit
        )
        headers = paging.links(request, asked, found, lambda message: message.id)
        source = await self._source_of(job)
        views = [message_view(message, personal=personal, source=source) for message in found]
        return bodies.answer(views, headers=headers)

    async def _export(
        self, job: Job, state: MessageState | None, after: str, media: str, *, personal: bool
    ) -> Response[Any]:
        unsent = (await self._figures.count(job)).unsent
        pages = self._read_views(job, state, after, personal=personal)
        first = await anext(pages)  # what cannot be read is told by a status, as long as nothing is written
        header = csv_header() if media == CSV and not after else b""
        stream = _write(header, first, pages, _EXPORTS[media])
        return Stream(stream, media_type=media, headers={UNSENT_HEADER: str(unsent)})

    async def _read_views(
        self, job: Job, state: MessageState | None, after: str, *, personal: bool
    ) -> AsyncGenerator[Sequence[MessageView]]:
        """The messages, a page at a time; at least one page."""
        source = await self._source_of(job)
        while True:
            found = await self._store.message_lists.page(split_key(job.key)[1], state=state, after=after, limit=_PAGE)
            yield [message_view(message, personal=personal, source=source) for message in found]
            if not found.more:
                return
            after = found[-1].id

    async def _source_of(self, job: Job) -> MessageSource | None:
        incarnation = split_key(job.key)[1]
        return (await self._store.message_jobs.sources_of([incarnation])).get(incarnation)


async def _write(
    header: bytes, first: Sequence[MessageView], others: AsyncGenerator[Sequence[MessageView]], write: _Write
) -> AsyncGenerator[bytes]:
    yield header + write(first)
    async for views in others:
        yield write(views)


def _export_of(request: Request[Any, Any, Any]) -> str:
    for part in request.headers.get("accept", "").split(","):
        media, *parameters = (text.strip().lower() for text in part.split(";"))
        if media in _EXPORTS and not any(map(_NOT_WANTED.fullmatch, parameters)):
            return media
    return ""


def _read_position(request: Request[Any, Any, Any]) -> str:
    cursor = paging.first(request, "cursor")
    return cursor if "." in cursor else paging.read_page(request, str).after or ""


class RetriedState(StrEnum):
    """States of messages that may be sent again."""

    FAILED = "failed"
    UNSENT = "unsent"
    UNKNOWN = "unknown"


class RetriedBody(bodies.Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages of a job are sent again."""

    states: Annotated[
        list[RetriedState],
        Meta(
            min_length=1,
            description="Messages in these states: `failed`, `unsent` (what a stop left), and `unknown`: these may "
            "reach a recipient a second time.",
        ),
    ] = msgspec.field(default_factory=lambda: [RetriedState.FAILED])


class RetriesResource(Resource):
    def __init__(self, store: Store, retry: JobRetry, answers: JobAnswers) -> None:
        self._store = store
        self._retry = retry
        self._answers = answers

    @Route(
        "POST", JOB + "/retry",
        summary="Send messages of a job again that has ended; it keeps its age, they keep their ids.",
        act="job.retry", who=OPERATE_APP, body=RetriedBody, answers={HTTPStatus.ACCEPTED: JobView},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    )  # fmt: skip
    async def retry_job(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], job_id: FromPath[str]
    ) -> Response[bytes]:
        body = bodies.read(await request.body(), RetriedBody)
        app, job = await job_of(self._store, app_id, job_id)
        if job.service != MESSAGE_SERVICE:
            raise Invalid("only a job of messages can be retried: this one sends pushes", field="jobId", value=job.id)
        states = {MessageState(state.value) for state in body.states}
        reopened = await self._retry.retry(job, states, by=doer_of(request))
        answer = await self._answers.show(reopened, app, exact=True)
        answer.status_code = HTTPStatus.ACCEPTED
        return answer
