"""The console in workers: bulk actions."""

from collections.abc import Sequence
from typing import Any

from services.parts import Part
from services.parts.console.common import ConsolePart
from services.worker.console.bulk import BulkRunner
from services.worker.consumer import Stage


class ConsoleWorker(Part):
    def stages(self) -> Sequence[Stage[Any]]:
        return (BulkRunner(self.parts.of(ConsolePart).bulk),)
