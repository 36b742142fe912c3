"""What the API serves of the console."""

from collections.abc import Sequence

from services.api.console.audit import AuditResource
from services.api.http.routes import Resource
from services.parts import Part


class ConsoleApi(Part):
    """Audit."""

    def resources(self) -> Sequence[Resource]:
        return (AuditResource(self.store, self.capabilities.time),)
