"""`/apps/{appId}/groups`: the jobs of a localized push, seen and moved together."""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Meta, Struct
from msgspec.structs import replace

from services.api.accounts.apps import APP, app_of
from services.api.http import bodies
from services.api.http.acts import note_name
from services.api.http.paging import is_dry_run
from services.api.http.rights import OPERATE_APP, VIEW_APP, sees_personal_data
from services.api.http.routes import DRY_RUN, Resource, Route
from services.api.jobs.job_view import STATUS, JobState, state_of
from services.api.jobs.moves import MoveFiguresView, answer_figures, doer_of
from shared.audience.rules.zones import REST, describe_rest
from shared.core.errors import NotFound
from shared.core.ids import read_uuid
from shared.jobs.moves import GroupFlow
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.groups import Group, Step
from shared.jobs.rules.jobs import PAUSABLE, RESUMABLE, STOPPABLE, Job, JobStatus
from shared.jobs.watch import JobWatch
from shared.store import Store


class ZoneJobView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A zone's job: what it counts are devices. `state` and `failure` are those of the job."""

    zone: str
    job_id: str
    starts_at: int
    status: str
    state: JobState
    completed_at: int
    total_tokens: int
    completed_tokens: int
    failure: str
    devices: Annotated[
        int | None, Meta(description="The zone's devices, fixed when the first zone starts; `null` before that.")
    ]


class GroupView(Struct, frozen=True, kw_only=True, rename="camel"):
    """A localized push. `zones` has its jobs from west to east, and at the end that of the users without a zone; the
    sums are those of all. The zone of each user is fixed when the first zone starts, and `totalTokens`
    counts a zone's devices once it starts itself. `unknown` users of a file have no device. `redacted` says that what
    went wrong and `warnings` are left out, because the caller is a viewer."""

    id: str
    app_id: str
    template_name: str
    name: str
    starts_at: int
    past_time_strategy: str
    total_tokens: int
    completed_tokens: int
    sent: int
    failed: int
    skipped: int
    held_out: int
    unknown: int
    zones: list[ZoneJobView]
    created_by: str
    created_at: int
    redacted: bool = False
    warnings: Annotated[list[str], Meta(description="Probable mistakes, for people: devices without a zone.")] = []


GROUP = APP + "/groups/{group_id:str}"
_move = partial(
    Route, "PUT", who=OPERATE_APP, answers={HTTPStatus.OK: (GroupView, MoveFiguresView)},
    problems=(HTTPStatus.NOT_FOUND,), parameters=(DRY_RUN,),
)  # fmt: skip


class GroupsResource(Resource):
    def __init__(self, store: Store, groups: GroupFlow, watch: JobWatch) -> None:
        self._store = store
        self._watch = watch
        self._groups = groups

    @Route(
        "GET", GROUP, summary="Show a localized push: its zones, and the progress of all together.",
        who=VIEW_APP, answers={HTTPStatus.OK: GroupView}, problems=(HTTPStatus.NOT_FOUND,),
    )  # fmt: skip
    async def get_group(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], group_id: FromPath[str]
    ) -> Response[bytes]:
        group = await self._group(app_id, group_id)
        return await self._answer(group, personal=sees_personal_data(request))

    @_move(GROUP + "/pause", act="group.pause", summary="Hold all its jobs that have not ended.")
    async def pause_group(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], group_id: FromPath[str]
    ) -> Response[bytes]:
        pause = partial(self._groups.pause, by=doer_of(request))
        return await self._move_all(request, app_id, group_id, pause, PAUSABLE)

    @_move(
        GROUP + "/resume", act="group.resume", summary="Let all its held jobs go on, or start when their start comes."
    )
    async def resume_group(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], group_id: FromPath[str]
    ) -> Response[bytes]:
        resume = partial(self._groups.resume, by=doer_of(request))
        return await self._move_all(request, app_id, group_id, resume, RESUMABLE)

    @_move(GROUP + "/stop", act="group.stop", summary="End all its jobs for good.")
    async def stop_group(
        self, request: Request[Any, Any, Any], app_id: FromPath[str], group_id: FromPath[str]
    ) -> Response[bytes]:
        stop = partial(self._groups.stop, by=doer_of(request))
        return await self._move_all(request, app_id, group_id, stop, STOPPABLE)

    async def _move_all(
        self,
        request: Request[Any, Any, Any],
        app_id: str,
        group_id: str,
        move: Callable[[Group], Awaitable[int]],
        movable: frozenset[JobStatus],
    ) -> Response[bytes]:
        group = await self._group(app_id, group_id)
        if is_dry_run(request):
            return await answer_figures(self._store, await self._groups.jobs(group), movable)
        await move(group)
        return await self._answer(group)

    async def _group(self, app_id: str, group_id: str) -> Group:
        app = await app_of(self._store, app_id)
        group = await self._store.groups.get(read_uuid(group_id, field="groupId"))
        if group is None or group.app_id != app.id:
            raise NotFound(
                "the app has no group with this id: only localized jobs that were posted here are in groups",
                field="groupId",
                value=group_id,
            )
        note_name("group", group.job.title)
        return group

    async def _answer(self, group: Group, *, personal: bool = True) -> Response[bytes]:
        jobs = await self._groups.jobs(group)
        measured = await self._watch.measure(jobs)
        totals = {id: each.totals for id, each in measured.items()}
        steps = await self._read_steps(jobs)
        devices = {job.zone: sum(size for step in steps for size in step.sizes.get(job.zone, ())) for job in jobs}
        view = _view(group, jobs, totals, devices if steps else {})
        if steps and devices.get(REST):
            view = replace(view, warnings=[describe_rest(devices[REST], steps[-1].rest_values)])
        return bodies.answer(view if personal else redact(view))

    async def _read_steps(self, jobs: list[Job]) -> list[Step]:
        """The steps that divided the devices among zones; none until all exist."""
        steps = await self._store.divisions.steps(jobs[0].file_plan_id) if jobs and jobs[0].divided else []
        return steps if steps and steps[-1].last else []


def redact(view: GroupView) -> GroupView:
    """The group for a viewer: what went wrong may name a file."""
    zones = [replace(zone, failure=bodies.hide(zone.failure)) for zone in view.zones]
    return replace(view, zones=zones, warnings=[], redacted=True)


def _view(group: Group, jobs: list[Job], totals: dict[str, Totals], devices: dict[str, int]) -> GroupView:
    zones = [_zone_view(job, totals[job.id], devices) for job in jobs]
    return GroupView(
        id=group.id,
        app_id=group.app_id,
        template_name=",".join(group.job.template_names),
        name=group.job.title,
        starts_at=group.job.starts_at,
        past_time_strategy=group.job.past_time_strategy,
        total_tokens=sum(zone.total_tokens for zone in zones),
        completed_tokens=sum(zone.completed_tokens for zone in zones),
        sent=sum(each.sent for each in totals.values()),
        failed=sum(each.failed for each in totals.values()),
        skipped=sum(each.skipped for each in totals.values()),
        held_out=sum(each.held_out for each in totals.values()),
        unknown=sum(each.unknown for each in totals.values()),
        zones=zones,
        created_by=group.job.created_by,
        created_at=group.created_at,
    )


def _zone_view(job: Job, totals: Totals, devices: dict[str, int]) -> ZoneJobView:
    return ZoneJobView(
        zone=job.zone,
        job_id=job.id,
        starts_at=job.starts_at,
        status=STATUS[job.status],
        state=state_of(job),
        completed_at=job.completed_at,
        total_tokens=totals.planned,
        completed_tokens=totals.done,
        failure=job.failure,
        # The division goes with the batches; by then the zones have ended.
        devices=devices.get(job.zone, totals.planned if job.completed_at else None),
    )
