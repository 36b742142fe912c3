"""The stage behind `bus.replay`."""

import asyncio

import structlog

from services.worker.stage import Stage
from shared.domain.bus.tasks import RunReplay
from shared.flow.bus.replaying import Replaying

log = structlog.get_logger(__name__)


class ReplayRunner(Stage[RunReplay]):
    """Brings subscriptions events again, a turn of a replay at a time."""

    task = RunReplay
    in_flight = 2

    def __init__(self, replaying: Replaying) -> None:
        self._replaying = replaying
        self._stopping = asyncio.Event()

    async def run(self, task: RunReplay) -> None:
        """Do a turn of the replay. Raises `Unavailable`."""
        await self._replaying.run(task.replay_id, self._stopping)

    async def put_off(self, task: RunReplay) -> None:
        """Leave it to upkeep, which finds what nobody has."""

    async def give_up(self, task: RunReplay, reason: str) -> None:
        """End the replay as failed."""
        await self._replaying.give_up(task.replay_id, reason)

    def stop(self) -> None:
        """Leave what is in hand to other workers."""
        self._stopping.set()
