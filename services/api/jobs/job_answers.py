"""The answers that show one job: its progress, and what it has of its own."""

from http import HTTPStatus

from litestar import Response

from services.api.http import wire
from services.api.jobs.account_jobs import AccountJobs
from services.api.jobs.job_view import job_view, redact, with_account
from shared.domain.accounts.apps import App
from shared.domain.jobs.groups import Group
from shared.domain.jobs.jobs import Job
from shared.flow.jobs.watch import JobWatch
from shared.store import Store


class JobAnswers:
    """Answers with jobs. The figures of an open one are up to a second old."""

    def __init__(self, store: Store, watch: JobWatch, account_jobs: AccountJobs) -> None:
        self._store = store
        self._watch = watch
        self._account_jobs = account_jobs

    async def show(
        self,
        job: Job,
        app: App,
        group: Group | None = None,
        *,
        personal: bool = True,
        exact: bool = False,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Response[bytes]:
        """The job and its progress, without personal data unless `personal`; `exact` is as of this moment what the
        ledger tells of its messages."""
        figures = await self._account_jobs.measure(job, exact=exact) if job.credential_id else None
        # A job that was taken up again in between sends, and its state must say so.
        while figures and figures.round != job.round and (now := await self._store.jobs.view(job.key)) is not None:
            job, figures = now, await self._account_jobs.measure(now, exact=exact)
        measured = (await self._watch.measure([job]))[job.id]
        view = job_view(job, app, measured.totals, group, progress=measured.progress)
        if figures is not None:
            view = with_account(view, figures)
        return wire.answer(view if personal else redact(view), status)
