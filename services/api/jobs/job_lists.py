"""`/jobs`: the jobs of all apps that a caller may see, the newest first."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from heapq import merge
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from msgspec import Struct

from services.api.http import bodies, paging
from services.api.http.identity import caller_of
from services.api.http.rights import KNOWN
from services.api.http.routes import Parameter, Resource, Route
from services.api.jobs.job_view import WITH_FAILURE, JobState, JobView, fold_zones, listed_views, redact
from shared.accounts.rules.apps import Role
from shared.accounts.rules.callers import Caller
from shared.core.errors import Forbidden, Invalid
from shared.core.ids import read_uuid
from shared.core.instants import read_instant
from shared.drivers.mongo.documents import Page
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.store_jobs import place_of_job
from shared.jobs.watch import JobWatch
from shared.store import Store

APPS_AT_ONCE = 20
"""The most apps whose jobs one list contains."""

_APP = Parameter(name="app", description="Only jobs of the app with this id.", schema={"type": "string"})
_STATUS = Parameter(
    name="status", description="Only jobs in this state.", schema={"type": "string", "enum": [*JobState]}
)
_TEMPLATE = Parameter(
    name="template",
    description="Only jobs with exactly these names of templates, joined by commas.",
    schema={"type": "string"},
)
_BY = Parameter(
    name="by",
    description="Only jobs of this maker, as `createdBy` tells them: an e-mail address, or the name of a token.",
    schema={"type": "string"},
)
_SINCE = Parameter(
    name="since", description="Only jobs made then or later.", schema={"type": "string", "format": "date-time"}
)
_UNTIL = Parameter(
    name="until", description="Only jobs made before then.", schema={"type": "string", "format": "date-time"}
)
_GROUPED = Parameter(
    name="grouped",
    description="`true`: a localized push is one job, in the place of those of its zones, and the filters keep it if "
    "they keep one of them.",
    schema={"type": "boolean", "default": False},
)
_FILTERS = (_APP, _STATUS, _TEMPLATE, _BY, _SINCE, _UNTIL, _GROUPED)


class JobSelection(Struct, frozen=True, kw_only=True):
    """Which jobs a list is to show. `app_ids` is `None` for all apps."""

    app_ids: tuple[str, ...] | None
    state: JobState | None = None
    template: str = ""
    by: str = ""
    since: datetime | None = None
    until: datetime | None = None
    grouped: bool = False


class JobListResource(Resource):
    def __init__(self, store: Store, watch: JobWatch) -> None:
        self._store = store
        self._watch = watch

    @Route(
        "GET", "/jobs",
        summary="List the jobs of all apps that the caller may see, the newest first. "
                "`context` is left empty: the route of a job has it.",
        who=KNOWN, answers={HTTPStatus.OK: list[JobView]}, parameters=_FILTERS, paged=True,
        problems=(HTTPStatus.FORBIDDEN,),
    )  # fmt: skip
    async def list_all_jobs(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked, caller = paging.read_page(request, str), caller_of(request)
        wanted = JobSelection(
            app_ids=_visible_apps(caller, paging.first(request, "app")),
            state=paging.read_choice(request, "status", JobState),
            template=paging.first(request, "template"),
            by=paging.first(request, "by"),
            since=_read_instant(request, "since"),
            until=_read_instant(request, "until"),
            grouped=paging.read_flag(request, _GROUPED.name),
        )
        jobs = await read_jobs(self._store, wanted, before=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, jobs, place_of_job)
        view = view_pushes if wanted.grouped else view_jobs
        return bodies.answer(show_jobs(await view(self._store, self._watch, jobs), caller), headers=headers)


async def read_jobs(store: Store, wanted: JobSelection, *, before: str = "", limit: int) -> Page[Job]:
    """The newest of these jobs that are older than this place: of several apps, a page of each, merged."""
    ids = ("",) if wanted.app_ids is None else wanted.app_ids
    failed = {state: status for status, state in WITH_FAILURE.items()}
    status = None if wanted.state is None else failed.get(wanted.state) or JobStatus(wanted.state)
    pages = await asyncio.gather(
        *(
            store.job_lists.page(
                app_id=app_id,
                status=status,
                failed=wanted.state in failed if status in WITH_FAILURE else None,
                template=wanted.template,
                by=wanted.by,
                since=wanted.since,
                until=wanted.until,
                before=before,
                limit=limit,
                grouped=wanted.grouped,
            )
            for app_id in ids
        )
    )
    merged = Page(merge(*pages, key=place_of_job, reverse=True))
    found = Page(merged[: _whole(pages, limit)])
    found.more = len(merged) > len(found) or any(page.more for page in pages)
    return found


async def view_jobs(store: Store, watch: JobWatch, jobs: Sequence[Job]) -> list[JobView]:
    """These jobs, without those whose app is gone."""
    apps = await store.apps.with_ids(sorted({job.app_id for job in jobs}))
    return listed_views(jobs, apps, await watch.measure(jobs))


async def view_pushes(store: Store, watch: JobWatch, jobs: Sequence[Job]) -> list[JobView]:
    """The same, with the sums of all zones in the place of a zone."""
    zones = await store.job_lists.find_zones([job.group_id for job in jobs if job.zone])
    views = await view_jobs(store, watch, [job for job in jobs if not job.zone] + list(zones))
    grouped: dict[str, list[JobView]] = {}
    for view in views:
        grouped.setdefault(view.job_group_id if view.zone else view.id, []).append(view)
    wanted = [job.group_id if job.zone else job.id for job in jobs]
    return [fold_zones(found) if found[0].zone else found[0] for id in wanted if (found := grouped.get(id))]


def show_jobs(views: Sequence[JobView], caller: Caller) -> list[JobView]:
    return [_for_caller(view, caller) for view in views]


def _apps_with_role(caller: Caller) -> tuple[str, ...] | None:
    """The ids of the apps whose jobs this caller may see; `None` for all. Raises `Invalid` if these are too many for
    one list."""
    if caller.role_over_everything is not None:
        return None
    ids = tuple(sorted(caller.apps_with_role))
    if len(ids) > APPS_AT_ONCE:
        raise Invalid(f"you may see the jobs of {len(ids):,} apps: name one of them", field="app")
    return ids


def _visible_apps(caller: Caller, named: str) -> tuple[str, ...] | None:
    if not named:
        return _apps_with_role(caller)
    app_id = read_uuid(named, field="app")
    if caller.role_over_app(app_id) is None:
        raise Forbidden("you need the role viewer for this app", field="app", value=named)
    return (app_id,)


def _read_instant(request: Request[Any, Any, Any], name: str) -> datetime | None:
    text = paging.first(request, name)
    return read_instant(text, field=name) if text else None


def _whole(pages: Sequence[Page[Job]], limit: int) -> int:
    """How many of the merged jobs are certainly the newest: a page that ended by its size may hide some."""
    ends = [place_of_job(page[-1]) for page in pages if page.more and page]
    if not ends:
        return limit
    certain = max(ends)
    return min(limit, sum(place_of_job(job) >= certain for page in pages for job in page))


def _for_caller(view: JobView, caller: Caller) -> JobView:
    role = caller.role_over_app(view.app_id)
    return view if role is not None and role.covers(Role.OPERATOR) else redact(view)
