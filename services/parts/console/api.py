"""What the API serves of the console."""

from collections.abc import Sequence

from services.api.console.audit import AuditResource
from services.api.console.overview import OverviewResource
from services.api.console.processes import ProcessesResource
from services.api.console.settings import SettingsResource
from services.api.http.routes import Resource
from services.parts import Part
from shared.domain.console.signs import ROLES
from shared.flow.console.board import Board


class ConsoleApi(Part):
    """Audit, and what runs."""

    def resources(self) -> Sequence[Resource]:
        given = self.capabilities
        board = Board(self.store, given.broker, given.time, ROLES)
        return (
            AuditResource(self.store, given.time),
            OverviewResource(self.store, board),
            ProcessesResource(self.store, given.time, board.queues),
            SettingsResource(self.settings),
        )
