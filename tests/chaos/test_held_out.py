"""The store cannot note whom a batch holds out, a moment before the batch is taken: the batch waits, and nothing else
is lost by it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from services.wiring.process import build_service
from services.wiring.rooms import Rooms
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Batch
from shared.push.rules.choices import held_out
from shared.push.store import HeldOut
from shared.runtime.metrics import LANES_LOST, RECOVERIES
from tests.e2e.house import House

pytestmark = [pytest.mark.chaos, pytest.mark.native]

USERS = 4_000
SHARE = 0.1


class AwayOnce:
    """Each batch's users can only be noted at the second try."""

    def __init__(self, there: HeldOut) -> None:
        self._there = there
        self.refused: set[str] = set()

    async def put(self, batch: Batch, users: Sequence[str], *, owner: str) -> None:
        if batch.id not in self.refused:
            self.refused.add(batch.id)
            raise Unavailable("the store does not answer")
        await self._there.put(batch, users, owner=owner)

    async def read(self, batch: Batch) -> list[str]:
        return await self._there.read(batch)


@asynccontextmanager
async def a_worker(rooms: Rooms) -> AsyncIterator[None]:
    """A worker in this process."""
    worker, *_ = build_service("worker", rooms)
    await worker.start()
    try:
        yield
    finally:
        await worker.stop()


def counted() -> tuple[float, float]:
    """The lanes that were lost by now, and the batches that had to be recovered."""
    recovered = [
        sample.value for metric in RECOVERIES.collect() for sample in metric.samples if "_total" in sample.name
    ]
    return LANES_LOST._value.get(), sum(recovered)


async def test_neither_a_lane_nor_a_recovery_is_spent(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.devices(USERS)
    await house.file(b"", "bucket")
    away = AwayOnce(house.servers.store.held_out)
    monkeypatch.setattr(house.servers.store, "held_out", away)
    before = counted()
    async with a_worker(house.rooms):
        job_id = await house.post(control_group=SHARE)
        job = await house.closed(job_id)
    assert len(away.refused) == 4
    assert counted() == before
    spared = held_out([f"u{n}" for n in range(1, USERS + 1)], job_id, SHARE, by_rank=False)
    assert job.totals is not None
    assert (job.totals.sent, job.totals.held_out) == (USERS - len(spared), len(spared))
    sent = [record["metadata"]["userId"] for record in await house.records(job.totals.sent)]
    assert sorted([*sent, *spared]) == sorted(f"u{n}" for n in range(1, USERS + 1))
    lines = (await house.content(job.control_group_csv_path)).decode().splitlines()
    assert set(lines[1:]) == spared
