"""Positions and counts move together, or not at all, whoever else writes at the same time."""

import asyncio
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import AutoReconnect
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent

from shared.core.documents import Position
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import OTHER
from shared.push.store import Feedbacks
from shared.store import DURABLE, Store
from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.jobs.made import added
from tests.stack.mongodb import through_port


@pytest.fixture
async def job(store: Store) -> str:
    return await added(store)


async def counts(store: Store, job_id: str) -> dict[str, int]:
    job = await store.jobs.get(job_id)
    assert job is not None
    return job.feedbacks


async def test_a_partition_begins_at_nothing_and_moves_with_its_counts(store: Store, job: str) -> None:
    assert await store.feedbacks.positions(["t/0", "t/1"]) == {}
    assert await store.feedbacks.flush("t/0", Position(0), Position(7), {(job, "ack"): 5, (job, "bad-device-token"): 2})
    assert await store.feedbacks.flush("t/0", Position(7), Position(9), {(job, "ack"): 2})
    assert await store.feedbacks.positions(["t/0", "t/1"]) == {"t/0": Position(9)}
    assert await counts(store, job) == {"ack": 7, "bad-device-token": 2}


@pytest.mark.parametrize("start", [0, 5, 8])
async def test_a_step_from_elsewhere_changes_nothing(store: Store, job: str, start: int) -> None:
    await store.feedbacks.flush("t/0", Position(0), Position(7), {(job, "ack"): 7})
    assert not await store.feedbacks.flush("t/0", Position(start), Position(20), {(job, "ack"): 100})
    assert await store.feedbacks.positions(["t/0"]) == {"t/0": Position(7)}
    assert await counts(store, job) == {"ack": 7}


async def test_a_position_of_an_older_version_goes_on_with_the_log_that_is_there(
    store: Store, ready_database: str, job: str
) -> None:
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(ready_database)
    await client.get_default_database()["feedback_positions"].insert_one({"_id": "t/0", "position": 7})
    await client.close()
    assert await store.feedbacks.positions(["t/0"]) == {"t/0": Position(7)}
    assert await store.feedbacks.flush("t/0", Position(7), Position(9, "log"), {(job, "ack"): 2})
    assert await store.feedbacks.positions(["t/0"]) == {"t/0": Position(9, "log")}


async def test_a_step_in_another_log_changes_nothing(store: Store, job: str) -> None:
    assert await store.feedbacks.flush("t/0", Position(), Position(7, "old"), {(job, "ack"): 7})
    for start in (Position(7), Position(7, "new"), Position()):
        assert not await store.feedbacks.flush("t/0", start, Position(9, "new"), {(job, "ack"): 100})
    assert await store.feedbacks.flush("t/0", Position(7, "old"), Position(7, "new"), {(job, "ack"): 7})
    assert await store.feedbacks.positions(["t/0"]) == {"t/0": Position(7, "new")}
    assert await counts(store, job) == {"ack": 14}


async def test_a_step_without_counts_moves_the_position(store: Store) -> None:
    assert await store.feedbacks.flush("t/0", Position(0), Position(3), {})
    assert await store.feedbacks.flush("t/0", Position(3), Position(4), {})
    assert await store.feedbacks.positions(["t/0"]) == {"t/0": Position(4)}


async def test_one_step_counts_for_many_jobs_and_ignores_unknown_ones(store: Store) -> None:
    jobs = [await added(store) for _ in range(3)]
    step = {(job, "ack"): number for number, job in enumerate(jobs, start=1)}
    assert await store.feedbacks.flush(
        "t/0", Position(0), Position(9), {**step, ("nobody", "ack"): 5, (str(uuid.uuid4()), "x"): 1}
    )
    assert [await counts(store, job) for job in jobs] == [{"ack": 1}, {"ack": 2}, {"ack": 3}]
    assert await store.jobs.get("nobody") is None


async def test_a_job_takes_counts_from_many_partitions(store: Store, job: str) -> None:
    steps = [
        store.feedbacks.flush(f"t/{number}", Position(0), Position(10), {(job, "ack"): 10, (job, f"e{number}"): 1})
        for number in range(8)
    ]
    assert await asyncio.gather(*steps) == [True] * 8
    assert await counts(store, job) == {"ack": 80} | {f"e{number}": 1 for number in range(8)}


@pytest.mark.parametrize("begun", [False, True], ids=["first step", "later step"])
async def test_of_two_that_store_the_same_step_one_wins(store: Store, ready_database: str, begun: bool) -> None:
    other = Store.open(ready_database)
    jobs = [await added(store), await added(store)]
    start = 5 if begun else 0
    for number in range(25):
        partition = f"t/{number}"
        if begun:
            await store.feedbacks.flush(partition, Position(0), Position(5), {})
        step = {(job, "ack"): 3 for job in jobs}
        outcomes = await asyncio.gather(
            store.feedbacks.flush(partition, Position(start), Position(11), step),
            other.feedbacks.flush(partition, Position(start), Position(12), step),
        )
        assert sorted(outcomes) == [False, True]
        assert await store.feedbacks.positions([partition]) == {partition: Position(11 if outcomes[0] else 12)}
    assert [await counts(store, job) for job in jobs] == [{"ack": 75}] * 2
    await other.close()


async def test_counting_goes_on_while_others_move_the_job(store: Store, job: str) -> None:
    async def moves() -> None:
        for _ in range(100):
            await store.jobs.touch(job)

    async def steps() -> None:
        for position in range(50):
            assert await store.feedbacks.flush("t/0", Position(position), Position(position + 1), {(job, "ack"): 1})

    await asyncio.gather(moves(), steps(), moves())
    assert await counts(store, job) == {"ack": 50}


async def test_the_outcome_after_the_hundredth_is_other(store: Store, job: str) -> None:
    assert await store.feedbacks.flush(
        "t/0", Position(0), Position(100), {(job, f"e{number}"): 1 for number in range(100)}
    )
    assert OTHER not in await counts(store, job)
    assert await store.feedbacks.flush(
        "t/0", Position(100), Position(105), {(job, "e7"): 2, (job, "new"): 2, (job, "newer"): 1}
    )
    after = await counts(store, job)
    assert (len(after), after["e7"], after[OTHER]) == (101, 3, 3)


async def test_the_limit_holds_for_partitions_that_bring_outcomes_at_the_same_time(store: Store, job: str) -> None:
    steps = [
        store.feedbacks.flush(
            f"t/{part}", Position(0), Position(9), {(job, f"e{part}-{n}"): 1 for n in range(40)}, max_outcomes=50
        )
        for part in range(4)
    ]
    assert await asyncio.gather(*steps) == [True] * 4
    after = await counts(store, job)
    assert len(after.keys() - {OTHER}) == 50
    assert sum(after.values()) == 160


async def test_an_outcome_may_be_any_text(store: Store, job: str) -> None:
    strange = {"a.b": 1, "$set": 2, "%2E": 3, "nul\0": 4, "Ünïcode ✓": 5, "_id": 6, " ": 7}
    assert await store.feedbacks.flush(
        "t/0", Position(0), Position(1), {(job, outcome): count for outcome, count in strange.items()}
    )
    assert await counts(store, job) == strange


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64), st.integers(1, 9), max_size=8
    )
)
async def test_no_text_stops_it(store: Store, text: dict[str, int]) -> None:
    job = await added(store)
    step = {(job, outcome): count for outcome, count in text.items()} | {(outcome, "ack"): 1 for outcome in text}
    assert await store.feedbacks.flush(f"t/{job}", Position(0), Position(1), step)
    assert await counts(store, job) == text


@pytest.mark.slow
async def test_a_server_that_falls_silent_is_unavailable_and_the_step_can_be_tried_again(
    store: Store, job: str, ready_database: str
) -> None:
    url = urlsplit(ready_database)
    assert url.hostname
    assert url.port
    proxy = SilencableProxy(url.hostname, url.port)
    async with proxy.running():
        behind = Store.open(through_port(ready_database, proxy.port), timeout_seconds=3)
        assert await behind.feedbacks.flush("t/0", Position(0), Position(1), {(job, "ack"): 1})
        proxy.silent = True
        with pytest.raises(Unavailable):
            await behind.feedbacks.flush("t/0", Position(1), Position(2), {(job, "ack"): 1})
        proxy.silent = False
        assert await behind.feedbacks.flush("t/0", Position(1), Position(2), {(job, "ack"): 1})
        await behind.close()
    assert await counts(store, job) == {"ack": 2}


async def test_a_step_whose_reply_was_lost_is_stored_if_the_position_says_so(
    store: Store, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit happens, and its reply does not come."""
    commit = AsyncClientSession.commit_transaction

    async def lost(session: AsyncClientSession) -> None:
        await commit(session)
        raise AutoReconnect("the reply was lost")

    monkeypatch.setattr(AsyncClientSession, "commit_transaction", lost)
    assert await store.feedbacks.flush("t/0", Position(0), Position(1), {(job, "ack"): 1})
    assert await counts(store, job) == {"ack": 1}


async def test_a_flush_is_durable_when_it_is_answered(ready_database: str) -> None:
    seen: list[Any] = []

    class Commits(CommandListener):
        def started(self, event: CommandStartedEvent) -> None:
            if event.command_name == "commitTransaction":
                seen.append(event.command.get("writeConcern"))

        def succeeded(self, event: CommandSucceededEvent) -> None: ...

        def failed(self, event: CommandFailedEvent) -> None: ...

    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(ready_database, event_listeners=[Commits()])
    feedbacks = Feedbacks(client.get_default_database().with_options(write_concern=DURABLE))
    await feedbacks.setup()
    assert await feedbacks.flush("topic/0", Position(0), Position(5), {})
    assert seen == [{"w": "majority", "j": True}]
    await client.close()
