"""The part of the console that several processes share."""

from functools import cached_property

from services.parts import Part
from services.parts.clock.common import ClockPart
from services.parts.jobs.common import JobsPart
from shared.domain.console.signs import ROLES
from shared.flow.console.audit import SystemRecords
from shared.flow.console.bulk import BulkFlow, BulkJobs, BulkLetters, BulkSchedules, BulkThings
from shared.flow.console.overview import OverviewReader


class ConsolePart(Part):
    @cached_property
    def system_records(self) -> SystemRecords:
        return SystemRecords(self.store, self.capabilities.time, role=self.capabilities.service)

    @cached_property
    def overviews(self) -> OverviewReader:
        given = self.capabilities
        return OverviewReader(self.store, given.broker, given.time, ROLES)

    @cached_property
    def bulk(self) -> BulkFlow:
        schedules, jobs = self.parts.of(ClockPart).schedules, self.parts.of(JobsPart).flow
        things: dict[str, BulkThings] = {
            "dead-letter": BulkLetters(self.store, schedules),
            "schedule": BulkSchedules(self.store, schedules),
            "job": BulkJobs(self.store, jobs),
        }
        return BulkFlow(self.store, self.capabilities.broker, self.capabilities.time, things)
