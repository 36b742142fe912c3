"""Gauges of the whole deployment."""

import pytest

from shared.console.overview import Gauges
from shared.core.errors import Unavailable
from shared.jobs.rules.jobs import PAUSABLE, JobStatus
from shared.store import Store
from tests.jobs.made import added
from tests.queues import QUEUES, task_broker
from tests.samples import samples
from tests.waiting import until

pytestmark = pytest.mark.native


async def test_jobs_are_counted_by_status_and_messages_by_queue(store: Store) -> None:
    broker = await task_broker()
    for _ in range(2):
        await added(store)
    await store.jobs.move(await added(store), to=JobStatus.PAUSED, only=PAUSABLE, at=1)
    await added(store, open=False)
    await broker.publish("push.split", b"a task")
    await Gauges(store, broker).read_once()
    assert {labels["status"]: count for labels, count in samples("jobs_open") if count} == {"running": 2, "paused": 1}
    messages = {(labels["queue"], labels["state"]): count for labels, count in samples("queue_messages")}
    assert {queue for queue, _ in messages} == set(QUEUES)
    assert [messages["push.split", state] for state in ("ready", "unacked")] == [1, 0]


async def test_what_cannot_be_read_any_more_is_not_shown(store: Store) -> None:
    broker, _ = await task_broker(), await added(store)
    await Gauges(store, broker).read_once()
    await broker.close()
    with pytest.raises(Unavailable):
        await Gauges(store, broker).read_once()
    assert samples("queue_messages") == []

    async def is_shown() -> bool:
        return {labels["status"]: count for labels, count in samples("jobs_open") if count} == {"running": 1}

    await until(is_shown)  # what can be read is
