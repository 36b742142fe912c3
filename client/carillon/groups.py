"""`client.groups`: the jobs of a localized push, one for each time zone, seen and moved together."""

from msgspec import field

from carillon.calls import M, Resource, call
from carillon.displays import Short
from carillon.instants import Instant
from carillon.moves import DRY_RUN, Move, MoveFigures
from carillon.push_jobs import ZoneStart

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
