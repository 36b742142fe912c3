"""What the API serves of the console."""

from collections.abc import Sequence

from services.api.console.audit import AuditResource
from services.api.console.bulk_actions import BulkActionsResource
from services.api.console.dead_tasks import DeadTasksResource
from services.api.http.routes import Resource
from services.parts import Part
from services.parts.console.common import ConsolePart


class ConsoleApi(Part):
    """Audit, bulk actions, and dead tasks."""

    def resources(self) -> Sequence[Resource]:
        given, bulk = self.capabilities, self.parts.of(ConsolePart).bulk
        return (
            AuditResource(self.store, given.time),
            BulkActionsResource(self.store, bulk, given.clock),
            DeadTasksResource(given.broker),
        )
