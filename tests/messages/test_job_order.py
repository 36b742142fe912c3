"""By shares: who begins or comes back has nothing to catch up, and nobody who waits holds the others back."""

from collections.abc import Sequence
from typing import Any

import pytest

from shared.messages.feeding import page_in_order
from shared.messages.rules.credentials import SendOrder
from shared.messages.store_jobs import RunningJob


class Jobs:
    def __init__(self, running: Sequence[RunningJob]) -> None:
        self.running = running
        self.joined: dict[str, float] = {}

    async def find_running(self, _: str, *, since: int, limit: int) -> Sequence[RunningJob]:
        return [job for job in self.running if job.created_at >= since][:limit]

    async def join(self, keys: Sequence[str], had: float) -> None:
        self.joined |= dict.fromkeys(keys, had)


async def order(jobs: Jobs, by: SendOrder, floor: float | None = None) -> list[tuple[str, float | None]]:
    store: Any = type("Store", (), {"message_jobs": jobs})()
    return [(job.key, job.had) async for page in page_in_order(store, "x", by, floor=floor) for job in page]


WAITED, BUSY, NEW = RunningJob("waited", 1, 1, 10.0), RunningJob("busy", 2, 1, 1e5), RunningJob("new", 3, 1, None)


async def test_nobody_has_had_less_than_those_that_are_sent() -> None:
    jobs = Jobs([WAITED, BUSY, NEW])
    assert await order(jobs, SendOrder.SHARES, floor=99_000.0) == [
        ("waited", 99_000.0),
        ("busy", 1e5),
        ("new", 99_000.0),
    ]
    assert jobs.joined == {"new": 99_000.0}


async def test_where_nobody_is_sent_a_new_one_begins_beside_the_least() -> None:
    assert await order(Jobs([WAITED, BUSY, NEW]), SendOrder.SHARES) == [("waited", 10.0), ("busy", 1e5), ("new", 10.0)]


async def test_who_begins_does_not_come_before_all_that_were_sent_by_age() -> None:
    """Their places say nothing of shares: the account's order has just changed."""
    jobs = Jobs([BUSY, NEW])
    assert await order(jobs, SendOrder.SHARES, floor=0.0) == [("busy", 1e5), ("new", 1e5)]


@pytest.mark.parametrize("by", SendOrder)
async def test_each_is_told_once_however_many_were_created_at_once(
    monkeypatch: pytest.MonkeyPatch, by: SendOrder
) -> None:
    monkeypatch.setattr("shared.messages.feeding._PAGE", 3)
    jobs = [RunningJob(f"{number}", number // 2, 1, 0.0) for number in range(10)]
    assert [key for key, _ in await order(Jobs(jobs), by)] == [job.key for job in jobs]
