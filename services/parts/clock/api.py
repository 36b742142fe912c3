"""The clock in the API: routes and pages."""

from collections.abc import Sequence
from functools import cached_property

from services.api.clock.bulk import BulkResource
from services.api.clock.occurrences import DeadLettersResource, DueResource
from services.api.clock.pages.definitions import DefinitionPages
from services.api.clock.pages.schedules import DeadLetterPages, SchedulePages
from services.api.clock.schedules import ScheduleLimits, SchedulesResource
from services.api.http.pages.routes import PageSet
from services.api.http.routes import Resource
from services.parts import Part
from services.parts.clock.common import ClockPart
from shared.domain.clock.callbacks import Targets
from shared.flow.clock.due import DueLooker


class ClockApi(Part):
    @cached_property
    def targets(self) -> Targets:
        chosen = self.settings.callbacks
        return Targets(
            queues=self.capabilities.broker.delivers,
            streams=self.capabilities.stream.delivers,
            exchanges=frozenset(chosen.exchanges),
            topics=frozenset(chosen.topics),
            check_url=self.capabilities.check_callback_url,
        )

    def resources(self) -> Sequence[Resource]:
        schedules, limits = self.parts.of(ClockPart).schedules, ScheduleLimits(self.store, self.settings.api)
        return (
            SchedulesResource(self.store, schedules, self.targets, limits),
            BulkResource(self.store, schedules, self.targets, limits),
            DeadLettersResource(self.store, schedules),
            DueResource(DueLooker(self.store, self.capabilities.time)),
        )

    def pages(self) -> Sequence[PageSet]:
        return SchedulePages(), DefinitionPages(), DeadLetterPages()
