"""What the API serves of the console."""

from collections.abc import Sequence

from services.api.console.audit import AuditResource
from services.api.console.processes import ProcessesResource
from services.api.console.settings import SettingsResource
from services.api.http.routes import Resource
from services.parts import Part


class ConsoleApi(Part):
    """Audit, and what runs."""

    def resources(self) -> Sequence[Resource]:
        given = self.capabilities
        return (
            AuditResource(self.store, given.time),
            ProcessesResource(self.store, given.time, given.broker),
            SettingsResource(self.settings),
        )
