"""The clock: schedules, their occurrences, and the callbacks that these fire."""

from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

from services.api.clock.bulk import BulkResource
from services.api.clock.dead_letters import DeadLettersResource
from services.api.clock.schedule_limits import ScheduleLimits
from services.api.clock.schedules import SchedulesResource
from services.api.http.routes import Resource
from services.parts import Part
from services.parts.accounts import AccountsPart
from services.scheduler.clock import TickingClock
from services.scheduler.deliver import Deliveries
from services.scheduler.fire import Fire
from services.scheduler.in_hand import InHand
from services.scheduler.sweep import Sweep
from services.worker.clock.call import HttpCaller
from services.worker.clock.places import FairCalls, Places
from services.worker.stage import Stage
from shared.domain.clock.callbacks import Targets
from shared.flow.clock.retention import Retention
from shared.flow.clock.schedules import ScheduleFlow
from shared.flow.clock.settlement import Settlement
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic

# How many calls may wait in a worker for a place, so that none waits in the queue behind those of another caller.
_WAITING_PER_PLACE = 4


class ClockPart(Part):
    """The clock: schedules and all that they fire."""

    @cached_property
    def schedules(self) -> ScheduleFlow:
        return ScheduleFlow(self.store, self.capabilities.time)

    @cached_property
    def settlement(self) -> Settlement:
        return Settlement(self.store, tick=timedelta(seconds=self.settings.scheduler.tick_seconds))

    @cached_property
    def targets(self) -> Targets:
        """What callbacks may reach."""
        chosen = self.settings.callbacks
        return Targets(
            queues=self.capabilities.broker.delivers,
            streams=self.capabilities.stream.delivers,
            exchanges=frozenset(chosen.exchanges),
            topics=frozenset(chosen.topics),
            networks=chosen.allowed_networks,
        )

    def resources(self) -> Sequence[Resource]:
        limits = ScheduleLimits(self.store, self.settings.api)
        return (
            SchedulesResource(self.store, self.schedules, self.targets, limits),
            BulkResource(self.store, self.schedules, self.targets, limits),
            DeadLettersResource(self.store, self.schedules),
        )

    def stages(self) -> Sequence[Stage[Any]]:
        chosen = self.settings.callbacks
        waiting = _WAITING_PER_PLACE * chosen.calls_in_flight
        places = Places(at_once=chosen.calls_in_flight, per_host=chosen.calls_per_host, waiting=waiting)
        return (FairCalls(self._caller(), places),)

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        settings, store, time = self.settings.scheduler, self.store, self.capabilities.time
        retention = Retention(store, time, settings)
        return (
            TickingClock(store, time, self._fire(), settings),
            Periodic("sweep", Sweep(store, time).run_once, interval_seconds=settings.sweep_seconds),
            Periodic("retention", retention.run_once, interval_seconds=settings.retention_seconds),
        )

    def _fire(self) -> Fire:
        settings = self.settings.scheduler
        return Fire(
            self.store,
            self.capabilities.time,
            self._deliveries(),
            self.settlement,
            self.parts.on_due,
            tick=timedelta(seconds=settings.tick_seconds),
            misfire_after=timedelta(seconds=settings.misfire_after_seconds),
            work_seconds=settings.answer_seconds,
        )

    def _deliveries(self) -> Deliveries:
        settings = self.settings.scheduler
        lease_seconds = settings.call_lease_seconds + settings.lookahead_seconds
        return Deliveries(
            self.store,
            self.capabilities.broker,
            self.capabilities.stream,
            self.settlement,
            call_lease=timedelta(seconds=lease_seconds),
            waiting_calls=settings.waiting_calls,
            in_hand=InHand(self.store, most=settings.calls_per_namespace, lease_seconds=lease_seconds),
        )

    def _caller(self) -> HttpCaller:
        timeout = self.settings.callbacks.call_timeout_seconds + self.settings.scheduler.lookahead_seconds
        return HttpCaller(
            self.store,
            self.capabilities.time,
            self.capabilities.outgoing,
            self.settlement,
            call_timeout=timedelta(seconds=timeout),
            signing=self.parts.of(AccountsPart).signing,
        )
