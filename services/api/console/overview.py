"""`/overview`: the deployment at a glance; and `/namespaces`: what each namespace has."""

import asyncio
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any

from litestar import Request, Response
from msgspec import Struct, convert

from carillon.wire import console as wire
from carillon.wire.console import Attention, Namespace, OpenJobs, Queue, Sign, Unknown
from services.api.console.processes import PROCESS_STATES, show_minute, show_process
from services.api.http import bodies, paging
from services.api.http.bodies import Checks, OneOf, Timestamp
from services.api.http.identity import caller_of
from services.api.http.rights import KNOWN
from services.api.http.routes import Parameter, Resource, Route
from services.api.jobs.job_lists import APPS_AT_ONCE, JobSelection, read_jobs, show_jobs, view_jobs
from services.api.jobs.job_view import JobState, JobView
from shared.accounts.rules.callers import Caller
from shared.console.overview import SECONDS, OverviewReader
from shared.console.rules.overview import AttentionKind, OverallVerdict, Overview, ShownSign, find_attention, judge
from shared.console.rules.signs import SIGNS, Severity
from shared.core.instants import format_instant, format_maybe
from shared.drivers.mongo.documents import Page
from shared.jobs.rules.jobs import Job
from shared.jobs.watch import JobWatch
from shared.runtime.cached import CachedByKey
from shared.store import Store

_SHOWN = 20
_LOOKED_AT = 100
_LIMITS = Checks(
    PROCESS_STATES
    | {
        Sign: {"severity": OneOf(tuple(Severity))},
        Attention: {"kind": OneOf(tuple(AttentionKind))},
        wire.Overview: {"verdict": OneOf(tuple(OverallVerdict))},
    }
)
_SIGNS = {sign.name: sign for sign in SIGNS}


_AppIds = tuple[str, ...] | None


class _SeenJobs(Struct, frozen=True):
    """The jobs of some apps, for callers that may see all of them."""

    paused: list[JobView]
    running: list[JobView]
    waiting: list[JobView]


class OverviewResource(Resource):
    def __init__(self, store: Store, reader: OverviewReader, watch: JobWatch) -> None:
        self._store = store
        self._watch = watch
        self._reader = reader
        self._jobs = CachedByKey[_SeenJobs](seconds=SECONDS)

    @Route(
        "GET", "/overview", summary="Tell whether all is well, what runs and what waits.",
        who=KNOWN, answers={HTTPStatus.OK: wire.Overview[Timestamp, JobView]}, limits=_LIMITS,
    )  # fmt: skip
    async def get_overview(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        caller, overview = caller_of(request), await self._reader.read()
        whole = caller.role_over_everything is not None
        app_ids = None if whole else tuple(sorted(caller.apps_with_role)[:APPS_AT_ONCE])
        seen = await self._jobs.get(app_ids, partial(self._read_jobs, app_ids))
        jobs = OpenJobs(
            open={str(status): count for status, count in (overview.open_jobs or {}).items() if whole},
            paused=tuple(show_jobs(seen.paused, caller)),
            running=tuple(show_jobs(seen.running, caller)),
            waiting=tuple(show_jobs(seen.waiting, caller)),
        )
        return bodies.answer(_view(overview, jobs, whole=whole))

    async def _read_jobs(self, app_ids: _AppIds) -> _SeenJobs:
        states = (JobState.PAUSED, JobState.RUNNING)
        some = [
            await read_jobs(self._store, JobSelection(app_ids=app_ids, state=state), limit=_SHOWN) for state in states
        ]
        parts: list[list[Job]] = []
        known: set[str] = set()  # a job may move between two reads
        for jobs in (*some, await self._find_waiting(app_ids)):
            parts.append([job for job in jobs if job.id not in known])
            known.update(job.id for job in jobs)
        views = {view.id: view for view in await view_jobs(self._store, self._watch, [*chain(*parts)])}
        return _SeenJobs(*([views[job.id] for job in part if job.id in views] for part in parts))

    async def _find_waiting(self, app_ids: _AppIds) -> Sequence[Job]:
        if app_ids is None:
            found = await self._store.job_lists.find_next_starts(_LOOKED_AT)
        else:
            scheduled = JobSelection(app_ids=app_ids, state=JobState.SCHEDULED)
            jobs = await read_jobs(self._store, scheduled, limit=_LOOKED_AT)
            found = sorted(jobs, key=lambda job: job.starts_at)
        # A localized push has a job in each zone: only the next one is shown.
        firsts = {job.group_id if job.zone else job.id: job for job in reversed(found)}
        return list(firsts.values())[::-1][:_SHOWN]


def _view(overview: Overview, jobs: OpenJobs[JobView], *, whole: bool) -> wire.Overview[str, JobView]:
    verdict, shown = judge(overview)
    return wire.Overview(
        as_of=format_instant(overview.as_of),
        verdict=verdict,
        signs=tuple(_show_sign(sign, whole=whole) for sign in shown),
        attention=tuple(Attention(each.kind, each.count, each.sentence) for each in find_attention(overview) if whole),
        unknown=tuple(
            Unknown(part.what, part.reason if whole else "", format_instant(part.since)) for part in overview.unknown
        ),
        partial=not whole,
        jobs=jobs,
        dead_letters=(overview.dead_letters or 0) if whole else 0,
        processes=tuple(show_process(each, overview.as_of) for each in overview.processes or () if whole),
        queues=convert(overview.queues or () if whole else (), tuple[Queue, ...], from_attributes=True),
        minutes=tuple(show_minute(each) for each in overview.minutes or () if whole),
    )


def _show_sign(shown: ShownSign, *, whole: bool) -> Sign[str]:
    sign = _SIGNS[shown.sign]
    return Sign(
        name=sign.name,
        severity=sign.severity,
        sentence=sign.sentence,
        seen=shown.seen if whole else "",
        remedy=sign.remedy,
        since=format_maybe(shown.since),
    )


MOST_ON_A_PAGE = 50
COUNTED = 1_000
"""The count at which counting ends: one more means any larger number."""
_COUNTS = Parameter(
    name="counts", schema={"type": "boolean"},
    description="`false`: without how many tokens and schedules each has, which are counted for each name.",
)  # fmt: skip


class NamespacesResource(Resource):
    def __init__(self, store: Store) -> None:
        self._store = store

    @Route(
        "GET", "/namespaces",
        summary=f"List the namespaces over which the caller has a role, by name, at most {MOST_ON_A_PAGE} a page.",
        who=KNOWN, answers={HTTPStatus.OK: list[Namespace]}, paged=True, parameters=(_COUNTS,),
    )  # fmt: skip
    async def list_namespaces(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked, caller = paging.read_page(request, str), caller_of(request)
        counts = paging.read_flag(request, _COUNTS.name, default=True)
        limit, after = min(asked.limit, MOST_ON_A_PAGE), asked.after or ""
        if caller.role_over_everything is None:
            names = _page_of(caller, after, limit)
        else:
            names = await self._store.namespaces.page(after=after, limit=limit)
        headers = paging.links(request, asked, names, str)
        views = await asyncio.gather(*map(self._count, names)) if counts else map(Namespace, names)
        return bodies.answer([*views], headers=headers)

    async def _count(self, namespace: str) -> Namespace:
        return Namespace(
            namespace=namespace,
            tokens=await self._store.namespaces.count_tokens(namespace, most=COUNTED + 1),
            schedules=await self._store.schedules.count(namespace, most=COUNTED + 1),
        )


def _page_of(caller: Caller, after: str, limit: int) -> Page[str]:
    names = sorted({caller.namespace} | caller.namespaces_with_role)
    behind = names[bisect_right(names, after) :]
    page = Page(behind[:limit])
    page.more = len(behind) > limit
    return page
