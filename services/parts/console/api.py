"""The console in the API's process."""

from collections.abc import Sequence

from services.api.console.audit import AuditResource
from services.api.console.bulk_actions import BulkActionsResource, BulkDrafts
from services.api.console.letter_retries import LetterRetriesResource
from services.api.console.overview import NamespacesResource, OverviewResource
from services.api.console.pages.bulk_actions import BulkActionPages
from services.api.console.pages.overview import AuditPages, FindPages, OverviewPages, ProcessPages, SettingsPages
from services.api.console.processes import ProcessesResource, SettingsResource
from services.api.http.pages.routes import PageSet
from services.api.http.routes import Resource
from services.parts import Part
from services.parts.clock.common import ClockPart
from services.parts.console.common import ConsolePart
from services.parts.jobs.common import JobsPart


class ConsoleApi(Part):
    def resources(self) -> Sequence[Resource]:
        given, bulk = self.capabilities, self.parts.of(ConsolePart).bulk
        drafts = BulkDrafts(self.store, bulk, given.clock)
        overviews = self.parts.of(ConsolePart).overviews
        return (
            AuditResource(self.store, given.time),
            OverviewResource(self.store, overviews, self.parts.of(JobsPart).watch),
            ProcessesResource(self.store, given.time, overviews.queues),
            SettingsResource(self.settings),
            BulkActionsResource(self.store, bulk, drafts),
            LetterRetriesResource(self.store, self.parts.of(ClockPart).schedules, drafts),
            NamespacesResource(self.store),
        )

    def pages(self) -> Sequence[PageSet]:
        return (
            OverviewPages(self.parts.of(ConsolePart).overviews.glance),
            FindPages(),
            BulkActionPages(),
            ProcessPages(self.settings.broker),
            AuditPages(),
            SettingsPages(),
        )
