"""Schedulers: the clock, the handlers of what is due, and a table of periodic work."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial

from services.scheduler.clock import TickingClock
from services.scheduler.deliver import Deliveries, InHand
from services.scheduler.fire import Fire, OnDue
from services.scheduler.sweep import Retention, Sweep
from services.wiring.rooms import Rooms
from shared.bus import standing
from shared.bus import upkeep as bus_upkeep
from shared.bus.rules.wake_ups import QUEUE_OWNER
from shared.bus.standing import QueueGauges
from shared.bus.upkeep import BacklogUpkeep, BusRetention, ChunkUpkeep
from shared.bus.waking import DueQueues
from shared.clock.calendars import CalendarFollowing
from shared.console import overview
from shared.console.audit import ConsoleRetention
from shared.console.overview import Gauges
from shared.jobs.moves import DueWork
from shared.jobs.retention import JobRetention
from shared.jobs.rules.jobs import BATCH, JOB
from shared.jobs.upkeep import ShardTurns, Upkeep, UpkeepPatience
from shared.messages import figures
from shared.messages.barring import SuppressionUpkeep
from shared.messages.figures import CredentialGauges
from shared.messages.retention import MessageRetention
from shared.messages.rules.singles import CREDENTIAL, SINGLES
from shared.runtime.lifecycle import Closing, Component
from shared.runtime.loops import Periodic, Swept

# Work whose queue is busy counts as lost after this multiple of the usual patience.
_AT_LATEST = 10
# A round is a little shorter than the time between two searches, which varies, so that each search finds its round.
_ROUND = 0.8
_UNWOKEN_SECONDS, _REGISTRY_SECONDS, _REPLAY_SECONDS = 4.5, 9.0, 14.5

Work = tuple[str, Callable[[], Awaitable[Swept | None]], float]
"""The name of periodic work, a run of it, and the seconds between two runs."""


def scheduler_components(rooms: Rooms) -> list[Component]:
    servers = rooms.servers
    return [
        Closing("wake-ups due soon", rooms.bus.waker.close),
        *(Periodic(name, run, interval_seconds=seconds) for name, run, seconds in periodic_work(rooms)),
        # It starts last, so it stops first.
        TickingClock(servers.store, servers.time, _fire(rooms), servers.settings.scheduler),
    ]


def periodic_work(rooms: Rooms) -> list[Work]:
    """All that schedulers do now and then."""
    servers = rooms.servers
    store, time, broker, settings = servers.store, servers.time, servers.broker, servers.settings
    bus, console, jobs, singles = rooms.bus, rooms.console, rooms.jobs, rooms.messages.singles
    chosen = settings.scheduler
    sweeps, seldom = chosen.sweep_seconds, chosen.retention_seconds
    requeue_bulk = partial(console.bulk.requeue_lost, timedelta(seconds=chosen.stale_seconds))
    retention_of_console = ConsoleRetention(store, time, audit_days=settings.audit.retention_days)

    async def complete_revocations() -> Swept:
        """Continue revocations of dead processes, and pause schedules that requests in flight stored after one."""
        return Swept(discarded=await rooms.accounts.revocations.complete_all())

    async def align_anchors() -> Swept:
        return Swept(claimed=await rooms.clock.anchors.align_all())

    async def follow_calendars() -> Swept:
        return Swept(claimed=await CalendarFollowing(store, time).run_once())

    async def forget_sessions() -> Swept:
        return Swept(discarded=await store.sessions.remove_over(await time.now()))

    async def end_writers() -> Swept:
        """End the locks of processes that died while they changed subscriptions: other loops may wait for them."""
        return Swept(discarded=await store.bus_subscriptions.end_overdue_writers(await time.now()))

    return [
        ("revocations", complete_revocations, sweeps),
        ("deleted apps", rooms.accounts.removal.run_once, seldom),
        ("sessions that are over", forget_sessions, seldom),
        ("upkeep of unwoken queues", bus.unwoken.run_once, _UNWOKEN_SECONDS),
        ("upkeep of the registry", end_writers, _REGISTRY_SECONDS),
        ("upkeep of replays", bus.replaying.requeue_lost, _REPLAY_SECONDS),
        ("gauges of queues", QueueGauges(store, bus.standings, time.now).read_once, standing.INTERVAL_SECONDS),
        ("upkeep of chunks", ChunkUpkeep(store).run_once, bus_upkeep.INTERVAL_SECONDS),
        ("limits of backlogs", BacklogUpkeep(store, time, bus.backlog_limits).run_once, bus_upkeep.INTERVAL_SECONDS),
        ("retention of the bus", BusRetention(store, time, settings.bus).run_once, seldom),
        ("moved anchors", align_anchors, sweeps),
        ("changed calendars", follow_calendars, sweeps),
        ("sweep", Sweep(store, time).run_once, sweeps),
        ("retention", Retention(store, time, chosen).run_once, seldom),
        ("retention of the console", retention_of_console.run_once, seldom),
        ("gauges", Gauges(store, broker).read_once, overview.INTERVAL_SECONDS),
        ("system records", console.system_records.run_once, sweeps),
        ("upkeep of bulk actions", requeue_bulk, seldom),
        ("upkeep of jobs", _upkeep(rooms).sweep, chosen.upkeep_seconds),
        ("retention of jobs", JobRetention(store, time, jobs.kinds, chosen).run_once, seldom),
        ("deleted jobs", jobs.removal.run_once, seldom),
        ("upkeep of single messages", singles.wake_lost, sweeps),
        ("retention of single messages", singles.forget_contents, seldom),
        ("gauges of credentials", CredentialGauges(store).read_once, figures.INTERVAL_SECONDS),
        ("upkeep of suppressions", SuppressionUpkeep(store).run_once, seldom),
        ("retention of messages", MessageRetention(store, time, settings.providers).run_once, seldom),
    ]


async def take_up(rooms: Rooms) -> None:
    """Find all unfinished work at once. Only for the start of a store's only process: no other process works, so no
    patience is needed."""
    servers = rooms.servers
    none = timedelta(0)
    await servers.store.bus_wake_ups.let_all_go(await servers.time.now())
    await rooms.bus.unwoken.run_once(after=none)
    await rooms.bus.replaying.requeue_lost(none)
    await rooms.console.bulk.requeue_lost(none)
    await _make_upkeep(rooms, UpkeepPatience(none, none, none)).run_once()


def handlers_of_due(rooms: Rooms) -> Mapping[str, OnDue]:
    """The clock's handlers of occurrences, by the kind of their owner."""
    work = DueWork(rooms.servers.store, rooms.jobs.feed, rooms.jobs.flow)
    return {
        QUEUE_OWNER: DueQueues(rooms.bus.waker).begin,
        JOB: work.begin_stage,
        BATCH: work.bring_back_batch,
        CREDENTIAL: rooms.messages.feed.feed_due,
        SINGLES: rooms.messages.singles.wake_due,
    }


def _fire(rooms: Rooms) -> Fire:
    servers = rooms.servers
    store, chosen, settlement = servers.store, servers.settings.scheduler, rooms.clock.settlement
    lease_seconds = chosen.call_lease_seconds + chosen.lookahead_seconds
    deliveries = Deliveries(
        store,
        servers.broker,
        servers.stream,
        settlement,
        call_lease=timedelta(seconds=lease_seconds),
        waiting_calls=chosen.waiting_calls,
        in_hand=InHand(store, most=chosen.calls_per_namespace, lease_seconds=lease_seconds),
    )
    return Fire(
        store,
        servers.time,
        deliveries,
        settlement,
        handlers_of_due(rooms),
        tick=timedelta(seconds=chosen.tick_seconds),
        misfire_after=timedelta(seconds=chosen.misfire_after_seconds),
        work_seconds=chosen.answer_seconds,
    )


def _upkeep(rooms: Rooms) -> Upkeep:
    servers = rooms.servers
    chosen = servers.settings.scheduler
    stale = timedelta(seconds=chosen.stale_seconds)
    patience = UpkeepPatience(
        owned=timedelta(seconds=servers.settings.stream.transaction_timeout_seconds + chosen.margin_seconds),
        queued=stale,
        at_latest=_AT_LATEST * stale,
    )
    turns = ShardTurns(
        servers.store.upkeep_turns,
        servers.time.now,
        every=timedelta(seconds=_ROUND * chosen.upkeep_seconds),
        lease=timedelta(seconds=chosen.lease_seconds),
    )
    return _make_upkeep(rooms, patience, turns)


def _make_upkeep(rooms: Rooms, patience: UpkeepPatience, turns: ShardTurns | None = None) -> Upkeep:
    servers = rooms.servers
    jobs = rooms.jobs
    return Upkeep(
        servers.store, servers.broker, jobs.feed, jobs.flow, jobs.groups, jobs.breaker, jobs.kinds, patience, turns
    )
