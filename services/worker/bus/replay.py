"""The stage behind `bus.replay`."""

import asyncio

import structlog

from services.worker.stage import Stage
from shared.domain.bus.tasks import RunReplay
from shared.flow.bus.replaying import Replaying

log = structlog.get_logger(__name__)


class ReplayRunner(Stage[RunReplay]):
    """Runs replays, a turn at a time."""

    task = RunReplay
    in_flight = 2

    def __init__(self, replaying: Replaying) -> None:
        self._replaying = replaying
        self._stopping = asyncio.Event()

    async def run(self, task: RunReplay) -> None:
        await self._replaying.run(task.replay_id, self._stopping)

    async def put_off(self, task: RunReplay) -> None:
        """Leave it to upkeep, which finds replays without a worker."""

    async def give_up(self, task: RunReplay, reason: str) -> None:
        await self._replaying.give_up(task.replay_id, reason)

    def stop(self) -> None:
        """Leave replays in hand to other workers."""
        self._stopping.set()
