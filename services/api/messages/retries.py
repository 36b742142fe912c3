"""`POST /apps/{appId}/jobs/{jobId}/retry`: taking a job up again after its end."""

from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta

from services.api.http import wire
from services.api.http.rights import OPERATE_APP
from services.api.http.routes import Resource, Route
from services.api.jobs.doers import doer_of
from services.api.jobs.job_answers import JobAnswers
from services.api.jobs.job_view import JobView
from services.api.jobs.jobs import JOB, job_of
from shared.domain.errors import Invalid
from shared.domain.messages.jobs import MESSAGE_SERVICE
from shared.domain.messages.ledger import MessageState
from shared.flow.messages.retrying import JobRetry
from shared.store import Store


class RetriedState(StrEnum):
    """States of messages that may be sent again."""

    FAILED = "failed"
    UNSENT = "unsent"
    UNKNOWN = "unknown"


class RetriedBody(wire.Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages of a job are sent again."""

    states: Annotated[
        list[RetriedState],
        Meta(
            min_length=1,
            description="Messages in these states: `failed`, `unsent` (what a stop left), and `unknown`: these may "
            "reach somebody a second time.",
        ),
    ] = msgspec.field(default_factory=lambda: [RetriedState.FAILED])


class RetriesResource(Resource):
    """The route that takes jobs up again."""

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
        body = wire.read(await request.body(), RetriedBody)
        app, job = await job_of(self._store, app_id, job_id)
        if job.service != MESSAGE_SERVICE:
            raise Invalid("only a job of messages can be retried: this one sends pushes", field="jobId", value=job.id)
        states = {MessageState(state.value) for state in body.states}
        reopened = await self._retry.retry(job, states, by=doer_of(request))
        answer = await self._answers.show(reopened, app, exact=True)
        answer.status_code = HTTPStatus.ACCEPTED
        return answer
