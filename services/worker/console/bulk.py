"""Bulk actions: the stage behind `ops.bulk`."""

import structlog

from services.worker.consumer import Stage
from shared.console.bulk import BulkFlow
from shared.console.rules.bulk_actions import RunBulkAction

log = structlog.get_logger(__name__)


class BulkRunner(Stage[RunBulkAction]):
    """Takes an action and does page after page of it. When the process stops, it ends after the page in hand."""

    task = RunBulkAction
    in_flight = 2

    def __init__(self, flow: BulkFlow) -> None:
        self._flow = flow
        self._stopping = False

    async def run(self, task: RunBulkAction) -> None:
        turn = await self._flow.take(task.action_id)
        while turn is not None and await turn.work():
            if self._stopping:
                await turn.hand_over()
                return

    async def put_off(self, task: RunBulkAction) -> None:
        """Leave it to upkeep, which finds actions without a worker."""

    async def give_up(self, task: RunBulkAction, reason: str) -> None:
        log.error("bulk action given up", action=task.action_id, reason=reason)
        await self._flow.give_up(task.action_id, reason)

    def stop(self) -> None:
        """Leave the rest to other workers after the page in hand."""
        self._stopping = True
