"""The part of the clock that several processes share."""

from datetime import timedelta
from functools import cached_property

from services.parts import Part
from shared.flow.clock.schedules import ScheduleFlow
from shared.flow.clock.settlement import Settlement


class ClockPart(Part):
    @cached_property
    def schedules(self) -> ScheduleFlow:
        return ScheduleFlow(self.store, self.capabilities.time)

    @cached_property
    def settlement(self) -> Settlement:
        return Settlement(self.store, tick=timedelta(seconds=self.settings.scheduler.tick_seconds))
