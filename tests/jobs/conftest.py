"""What feeds jobs in tests, and upkeep that loses no time."""

from datetime import timedelta

import pytest

from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.jobs.feed import Feed
from shared.jobs.finish import Breaker
from shared.jobs.moves import GroupFlow, JobFlow
from shared.jobs.upkeep import ShardTurns, Upkeep, UpkeepPatience
from shared.runtime.clock import SystemClock
from shared.store import Store
from tests.jobs.kinds import KINDS
from tests.queues import task_broker

NONE = timedelta(0)


@pytest.fixture
async def broker() -> MemoryBroker:
    return await task_broker()


@pytest.fixture
def feed(store: Store, broker: MemoryBroker) -> Feed:
    return Feed(store, broker, KINDS)


@pytest.fixture
def upkeep(store: Store, broker: MemoryBroker, feed: Feed) -> Upkeep:
    """Upkeep without any patience: whatever it may take for lost, it does."""
    return impatient(store, broker, feed)


def impatient(store: Store, broker: MemoryBroker, feed: Feed, turns: ShardTurns | None = None) -> Upkeep:
    jobs = JobFlow(store, feed, SystemClock(), role="worker")
    breaker = Breaker(store, SystemClock(), role="worker", max_failed_share=0.05, mails=False)
    patience = UpkeepPatience(NONE, NONE, NONE)
    return Upkeep(store, broker, feed, jobs, GroupFlow(store, jobs), breaker, KINDS, patience, turns)
