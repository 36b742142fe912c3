"""The clock in schedulers."""

from collections.abc import Sequence
from datetime import timedelta

from services.parts import Part
from services.parts.clock.common import ClockPart
from services.scheduler.clock import TickingClock
from services.scheduler.deliver import Deliveries, InHand
from services.scheduler.fire import Fire
from services.scheduler.sweep import Sweep
from shared.flow.clock.settlement import Retention
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class ClockScheduler(Part):
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
            self.parts.of(ClockPart).settlement,
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
            self.parts.of(ClockPart).settlement,
            call_lease=timedelta(seconds=lease_seconds),
            waiting_calls=settings.waiting_calls,
            in_hand=InHand(self.store, most=settings.calls_per_namespace, lease_seconds=lease_seconds),
        )
