"""Schedulers are killed while they redact, forget, and delete apps: the next one goes on, and no figure changes."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.jobs.rules.jobs import Job
from shared.messages.rules.answers import Channel
from shared.messages.rules.ledger import MessageState, entry_id
from shared.messages.rules.suppressions import SuppressionCause, suppress_address
from shared.runtime.configuration import load
from shared.store import Store
from tests.e2e.house import House
from tests.messages.store.ended_jobs import EVER, NOW, add_job, left, tell
from tests.services.worker.messages.post import add_app
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

SIZES = [700, 600, 500, 400]


@pytest_asyncio.fixture
async def servers(house: House) -> AsyncIterator[Servers]:
    house.environment |= {"CARILLON_SCHEDULER_RETENTION_SECONDS": "0.5", "CARILLON_SCHEDULER_SWEEP_SECONDS": "0.5"}
    opened = Servers(load(house.environment), service="test")
    yield opened
    await opened.close()


@pytest.fixture
def store(servers: Servers) -> Store:
    return servers.store


async def ended(store: Store, days: float, **fields: Any) -> Job:
    """A job that ended so long ago."""
    job = await add_job(store, SIZES, unsent=2, batch_size=1_000, **fields)
    assert await tell(store, entry_id(job.incarnation, 1, 1), MessageState.FAILED, "hard-bounce")
    since = await store.now() - timedelta(days=days)
    dates = dict.fromkeys(("personal_since", "ledger_since"), since)
    await store.jobs._jobs.update_one({"_id": job.id}, {"$set": dates})
    return job


@pytest.mark.parametrize("point", and_rarely("redact.after_step@1", rarely=["redact.after_step@2"]))
async def test_who_dies_while_redacting_leaves_it_to_the_next(house: House, store: Store, point: str) -> None:
    job = await ended(store, 31)
    before = await store.message_sums.count(job.key)
    doomed = await house.start("scheduler", fault=f"{point}=kill")
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("scheduler")

    async def is_redacted() -> bool:
        return not await store.kept_ledgers.find_unredacted(EVER, limit=1)

    await until(is_redacted)
    rows = await store.message_lists.page(job.incarnation, limit=10_000)
    assert {(row.to, row.detail, row.redacted_at is None) for row in rows} == {("", "", False)}
    assert len(rows) == sum(SIZES)
    assert await store.message_sums.count(job.key) == before


@pytest.mark.parametrize("point", and_rarely("forget.after_fold@2", rarely=["forget.after_begin", "forget.before_end"]))
async def test_who_dies_while_forgetting_leaves_it_to_the_next(house: House, store: Store, point: str) -> None:
    job = await ended(store, 181)
    before = await store.message_sums.count(job.key)
    told = 0

    async def tell_on() -> None:
        nonlocal told
        for row in range(0, 400, 7):
            told += await tell(store, entry_id(job.incarnation, 3, row), MessageState.DELIVERED, "")
            counts = await store.message_sums.count(job.key)
            assert (counts.planned, counts.unsent, counts.by_state["delivered"]) == (before.planned, 8, told)

    doomed = await house.start("scheduler", fault=f"{point}=kill")
    telling = asyncio.create_task(tell_on())
    assert await doomed.gone() == -signal.SIGKILL
    assert await store.reopening.reopen_job(job, [MessageState.FAILED], at=1) is None
    await house.start("scheduler")

    async def is_forgotten() -> bool:
        return not await store.kept_ledgers.find_old(EVER, limit=1)

    await until(is_forgotten)
    await telling
    assert set((await left(store, job)).values()) == {0}
    counts = await store.message_sums.count(job.key)
    assert (counts.planned, counts.unsent, counts.reasons) == (before.planned, 8, before.reasons)
    assert counts.by_state == before.by_state | {"delivered": told, "sent": before.by_state["sent"] - told}


@pytest.mark.parametrize("point", ["removal.after_secrets", "removal.after_step", "removal.before_end"])
async def test_who_dies_while_deleting_an_app_leaves_it_to_the_next(house: House, servers: Servers, point: str) -> None:
    store, app = servers.store, await add_app(servers)
    job = await ended(store, 1, app_id=app.id)
    hand, people = SuppressionCause.HAND, [f"u{number}@example.com" for number in range(1_200)]
    suppressions = [suppress_address(app.id, Channel.MAIL, one, cause=hand, at=NOW) for one in people]
    await store.suppressions.add(suppressions)
    rooms = Rooms(servers)
    assert not await rooms.accounts.removal.remove(app, seconds=0)
    doomed = await house.start("scheduler", fault=f"{point}=kill")
    assert await doomed.gone() == -signal.SIGKILL
    assert await store.apps.get(app.id) is not None, "its name is taken until all is gone"
    await house.start("scheduler")

    async def is_gone() -> bool:
        return await store.apps.get(app.id) is None

    await until(is_gone)
    assert set((await left(store, job)).values()) == {0}
    assert await store.jobs.view(job.key) is None
    assert await store.suppressions.page(app.id, limit=1) == []


@pytest.mark.parametrize("point", ["deletion.after_step", "deletion.after_batches", "deletion.before_end"])
async def test_who_dies_while_deleting_a_job_leaves_it_to_the_next(house: House, store: Store, point: str) -> None:
    job = await ended(store, 1)
    assert await store.closed_jobs.begin_removal(job.key)
    doomed = await house.start("scheduler", fault=f"{point}=kill")
    assert await doomed.gone() == -signal.SIGKILL
    await house.start("scheduler")

    async def is_gone() -> bool:
        return await store.jobs.view(job.key) is None

    await until(is_gone)
    assert set((await left(store, job)).values()) == {0}
