"""Events of jobs, messages and schedules are published to those who may see them, at least once, each with one id."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from pymongo.asynchronous.collection import AsyncCollection

from carillon.wire.clock import Retry
from shared.accounts.rules.apps import Role
from shared.accounts.rules.callers import Token, TokenScope, User
from shared.bus.outbox import OutboxPublisher
from shared.bus.rules.cutting import BacklogLimits
from shared.bus.rules.events import EVERYBODY, BusEvent
from shared.bus.rules.notices import NoticeKind
from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.bus.upkeep import BacklogUpkeep
from shared.clock.rules.callbacks import Undeliverable
from shared.clock.settlement import Attempt, Settlement
from shared.console.audit import SystemRecords
from shared.core.documents import JOBS_TOPIC, MESSAGES_TOPIC, SCHEDULES_TOPIC
from shared.core.errors import Unavailable
from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.events import COMPLETE, STOP_ACT, TRIP, Milestone, stop_of
from shared.jobs.rules.jobs import STOPPABLE, JobStatus
from shared.messages.rules.answers import CallAccepted
from shared.messages.rules.ledger import Message, MessageState, News, answer, hear, write_ahead
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.store import Store
from shared.time import DatabaseTime
from tests.bus.store.made_subscriptions import add, change
from tests.bus.test_notices import LOG, OffLog, facts_of, told
from tests.bus.test_publish import publisher_of
from tests.bus.test_retention import Later
from tests.clock.made import AHEAD, LIST
from tests.clock.test_settlement import claimed, made
from tests.jobs.made import added

pytestmark = pytest.mark.native

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
RUNNING = frozenset({JobStatus.RUNNING})


@pytest.fixture
async def stream(tmp_path: Path) -> AsyncIterator[Stream]:
    opened = LocalStream(tmp_path / "stream.db")
    await opened.setup({LOG: 1})
    yield opened
    await opened.close()


def teller(store: Store, stream: Any, later: timedelta = timedelta(0)) -> OutboxPublisher:
    publisher = publisher_of(store, stream, LOG)
    return OutboxPublisher(store, publisher, Later(store, later), base_url="https://c.example/x/")


async def add_owner(store: Store, name: str = "owner", topic: str = JOBS_TOPIC) -> None:
    """A token that may do anything with the app `a`, and a subscription of its namespace."""
    await store.tokens.add(Token(id=name, name=name, digest=name, allowed_apps=("a",)))
    await add(store, "k", topic, namespace=f"token:{name}")


async def end(store: Store, act: str = TRIP, reason: str = "3 of 10 batches failed", **fields: Any) -> str:
    """A job of the app `a` that was held, of which schedulers have told; its id."""
    job_id = await added(store, **fields)
    milestone = Milestone(act, NOON, "worker", reason)
    assert await store.jobs.move(job_id, to=JobStatus.TRIPPED, only=RUNNING, at=1, milestone=milestone) is not None
    await SystemRecords(store, DatabaseTime(store), role="scheduler").run_once()
    return job_id


async def stored(store: Store) -> int:
    return await store._database["outbox"].count_documents({})


def kinds(events: Sequence[BusEvent]) -> list[str]:
    return [event.type for event in events]


async def test_a_job_is_told_to_those_who_have_a_role_over_its_app(store: Store, stream: Stream) -> None:
    await add_owner(store)
    for token in (
        Token(id="viewer", name="v", digest="v", roles={"app/a": Role.VIEWER}),
        Token(id="also", name="g", digest="g", roles={"*": Role.VIEWER}, namespace="token:viewer"),
        Token(id="admin", name="d", digest="d", is_admin=True),
        Token(id="other", name="o", digest="o", allowed_apps=("b",)),
        Token(id="word", name="w", digest="w", roles={"app/a": Role.ADMIN}, scope=TokenScope.BUS),
        Token(id="late", name="l", digest="l", allowed_apps=("a",), expires_at=NOON - timedelta(days=9_999)),
    ):
        await store.tokens.add(token)
        if token.id != "also":
            await add(store, "k", JOBS_TOPIC, namespace=f"token:{token.id}")
    await store.users.add(User(id="u", email="ana@example.com", roles={"*": Role.VIEWER}))
    await add(store, "mine", JOBS_TOPIC, namespace="user:ana@example.com")
    await add(store, "else", MESSAGES_TOPIC, namespace="user:ana@example.com")
    job_id = await end(store)
    assert (await teller(store, stream).run_once()).claimed == 1
    events = await told(stream, 4)
    assert sorted(event.audience for event in events) == [
        "token:admin",
        "token:owner",
        "token:viewer",
        "user:ana@example.com",
    ]
    [(topic, kind, url)] = {(event.topic, event.type, event.url) for event in events}
    assert (topic, kind, url) == (JOBS_TOPIC, "job.held", f"https://c.example/x/apps/a/jobs/{job_id}")
    assert facts_of(events[0]) == {
        "job": job_id,
        "app": "a",
        "group": "g",
        "reason": "3 of 10 batches failed",
        "at": "2030-01-01T12:00:00Z",
    }
    assert len({event.id for event in events}) == 1
    assert await stored(store) == 0


async def test_a_completed_job_is_told_with_its_totals_and_a_stopped_one_by_whom(store: Store, stream: Stream) -> None:
    await add_owner(store)
    totals = Totals(batches=1, settled=1, planned=10, sent=9, failed=1)
    await end(store, COMPLETE, reason="", totals=totals)
    for asked in (True, False):
        job_id, stop = await added(store), Milestone(STOP_ACT, NOON, "api", asked=asked)
        assert await store.jobs.move(job_id, to=JobStatus.STOPPED, only=STOPPABLE, at=1, milestone=stop) is not None
    await SystemRecords(store, DatabaseTime(store), role="scheduler").run_once()
    await teller(store, stream).run_once()
    events = await told(stream, 3)
    assert sorted(kinds(events)) == ["job.completed", "job.stopped", "job.stopped"]
    facts = [facts_of(event) for event in events]
    assert [each["totals"]["sent"] for each in facts if "totals" in each] == [9]
    assert sorted(each.get("by", "") for each in facts) == ["", "caller", "carillon"]
    # The API has written down itself what a caller asked for.
    assert [record.who.name for record in await store.audit.page(act=STOP_ACT, limit=9)] == ["api"]


async def test_a_job_that_failed_or_expired_is_told_as_such(store: Store, stream: Stream) -> None:
    await add_owner(store)
    failed, expired = stop_of(NOON, "worker", failure="users.csv: byte 7"), "3 of 10 got nothing"
    for milestone in (failed, Milestone(COMPLETE, NOON, "worker", expired)):
        job_id = await added(store)
        moved = await store.jobs.move(job_id, to=JobStatus.STOPPED, only=STOPPABLE, at=1, milestone=milestone)
        assert moved is not None
    await SystemRecords(store, DatabaseTime(store), role="scheduler").run_once()
    await teller(store, stream).run_once()
    events = await told(stream, 2)
    facts = {event.type: facts_of(event) for event in events}
    assert facts["job.expired"]["reason"] == expired
    assert (facts["job.failed"]["by"], "reason" in facts["job.failed"]) == ("carillon", False)
    [stopped] = await store.audit.page(act=STOP_ACT, limit=9)
    assert stopped.reason == "users.csv: byte 7"


async def test_an_event_is_stored_while_a_subscription_has_its_topic_be_it_suspended(store: Store) -> None:
    await end(store)
    assert await stored(store) == 0
    await add_owner(store)
    [stands] = await store.bus_subscriptions.page_of("token:owner", limit=1)
    suspended = await change(store, stands, state=SubscriptionStatus.SUSPENDED)
    assert suspended is not None
    await end(store)
    assert await stored(store) == 1
    assert await change(store, suspended, state=SubscriptionStatus.REMOVED)
    await end(store)
    assert await stored(store) == 1


async def test_tokens_that_share_a_namespace_all_need_the_role(store: Store, stream: Stream) -> None:
    await add_owner(store)
    await store.tokens.add(Token(id="guest", name="g", digest="g", namespace="token:owner"))
    await end(store)
    assert (await teller(store, stream).run_once()).claimed == 1
    await store.tokens.remove("guest")
    job_id = await end(store)
    await teller(store, stream).run_once()
    assert [facts_of(event)["job"] for event in await told(stream, 1)] == [job_id]


async def test_an_event_that_none_may_have_any_more_is_forgotten(store: Store, stream: Stream) -> None:
    await add_owner(store)
    await end(store)
    await store.tokens.remove("owner")
    assert (await teller(store, stream).run_once()).claimed == 1
    assert await stored(store) == 0


async def write(store: Store, before: Message | None, after: Message | None) -> Message:
    assert after is not None
    assert await store.messages.fold([EntryChange(before, after)]) is WriteResult.DONE
    return after


async def test_a_message_is_told_once_it_is_delivered_read_or_failed(store: Store, stream: Stream) -> None:
    await add_owner(store, topic=MESSAGES_TOPIC)
    blank = Message(id="abc.00000000.00001", app_id="a", credential_id="post", to="ana@example.com")
    sending = await write(store, None, write_ahead(blank, owner="w", until=NOON))
    sent = await write(store, sending, answer(sending, 1, CallAccepted("p1"), at=NOON, attempts=3))
    assert await stored(store) == 0
    for state in (MessageState.DELIVERED, MessageState.READ, MessageState.INVALID):
        news = News(state=state, at=NOON, attempt=1, reason="hard-bounce", detail="ana@example.com has moved")
        sent = await write(store, sent, hear(sent, news))
        assert hear(sent, news) is None
    await teller(store, stream).run_once()
    events = await told(stream, 3)
    assert kinds(events) == ["message.delivered", "message.read", "message.failed"]
    assert {event.url for event in events} == {"https://c.example/x/apps/a/messages/abc.00000000.00001"}
    assert facts_of(events[2]) == {
        "message": "abc.00000000.00001",
        "app": "a",
        "credential": "post",
        "state": "invalid",
        "reason": "hard-bounce",
        "attempt": 1,
    }
    assert "ana" not in "".join(str(facts_of(event)) for event in events)
    assert facts_of(events[0])["at"] == "2030-01-01T12:00:00Z"


async def test_each_step_is_told_of_a_message_of_which_much_is_heard_at_once(store: Store, stream: Stream) -> None:
    await add_owner(store, topic=MESSAGES_TOPIC)
    unknown = Message(id="abc.00000000.00001", app_id="a", credential_id="post", to="x", state=MessageState.UNKNOWN)
    unknown = await write(store, None, replace(unknown, attempt=1, v=1))
    steps = [unknown]
    for state in (MessageState.SENT, MessageState.DELIVERED, MessageState.READ):
        heard = hear(steps[-1], News(state=state, at=NOON, attempt=1))
        assert heard is not None
        steps.append(heard)
    change_of_all = EntryChange(steps[0], steps[-1], tuple(steps[1:-1]))
    assert await store.messages.fold([change_of_all]) is WriteResult.DONE
    await teller(store, stream).run_once()
    expected = ["message.unknown", "message.sent", "message.delivered", "message.read"]
    assert kinds(await told(stream, 4)) == expected


async def test_an_entry_that_was_not_written_tells_nothing(store: Store) -> None:
    await add_owner(store, topic=MESSAGES_TOPIC)
    blank = Message(id="abc.00000000.00001", app_id="a", credential_id="post", to="x")
    sending = await write(store, None, write_ahead(blank, owner="w", until=NOON))
    delivered = hear(sending, News(state=MessageState.DELIVERED, at=NOON, attempt=1))
    assert delivered is not None
    stale = replace(sending, v=7)
    assert await store.messages.fold([EntryChange(stale, delivered)]) is WriteResult.STALE
    assert await stored(store) == 0


async def test_a_dead_letter_is_told_to_its_namespace_however_often_it_is_settled(
    store: Store, stream: Stream, flow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.tokens.add(Token(id="n", name="n", digest="n", namespace="ns"))
    await store.tokens.add(Token(id="o", name="o", digest="o"))
    for namespace in ("ns", "token:o"):
        await add(store, "k", SCHEDULES_TOPIC, namespace=namespace)
    schedule = await made(flow, replace(LIST, retry=Retry(attempts=1)))
    settlement = Settlement(store, tick=timedelta(seconds=1))
    refused = Attempt(await claimed(store, schedule), schedule, AHEAD, Undeliverable("no such queue: ana@example.com"))
    with monkeypatch.context() as patch:

        async def die(_: object) -> None:
            raise Unavailable("it came no further")

        patch.setattr(store.outcomes, "add", die)
        with pytest.raises(Unavailable):
            await settlement.settle([refused])
    await settlement.settle([refused])
    assert await stored(store) == 1
    await teller(store, stream).run_once()
    [event] = await told(stream, 1)
    assert (event.topic, event.type, event.audience) == (SCHEDULES_TOPIC, "schedule.dead", "ns")
    facts = facts_of(event)
    assert (facts["schedule"], facts["namespace"], facts["attempts"]) == ("a", "ns", 1)
    assert event.url == f"https://c.example/x/dead-letters/{facts['dead_letter']}"
    assert "error" not in facts


async def test_an_occurrence_that_was_skipped_for_an_open_job_is_told(store: Store, stream: Stream, flow: Any) -> None:
    await store.tokens.add(Token(id="n", name="n", digest="n", namespace="ns"))
    await add(store, "k", SCHEDULES_TOPIC, namespace="ns")
    schedule = await made(flow, LIST)
    skipped = Attempt(await claimed(store, schedule), schedule, AHEAD, Undeliverable("a job is open"), skipped=True)
    await Settlement(store, tick=timedelta(seconds=1)).settle([skipped])
    await teller(store, stream).run_once()
    [event] = await told(stream, 1)
    assert (event.type, event.url) == ("schedule.skipped", "https://c.example/x/schedules/a")
    assert facts_of(event)["reason"] == "a job is open"


async def test_a_log_that_is_away_is_told_later_under_the_same_id(store: Store, stream: Stream) -> None:
    await add_owner(store)
    await end(store)
    with pytest.raises(Unavailable):
        await teller(store, OffLog()).run_once()
    assert (await teller(store, stream).run_once()).claimed == 0
    assert await store.outbox.find_oldest() is not None
    assert (await teller(store, stream, timedelta(minutes=1)).run_once()).claimed == 1
    assert kinds(await told(stream, 1)) == ["job.held"]
    assert await store.outbox.find_oldest() is None


async def test_many_who_tell_at_once_tell_each_once(store: Store, stream: Stream) -> None:
    await add_owner(store)
    jobs = {await end(store) for _ in range(30)}
    await asyncio.gather(*(teller(store, stream).run_once() for _ in range(5)))
    events = await told(stream, 30)
    assert sorted(facts_of(event)["job"] for event in events) == sorted(jobs)
    assert await stored(store) == 0


async def test_of_more_events_than_may_wait_the_oldest_are_lost_and_told(store: Store, stream: Stream) -> None:
    await add_owner(store)
    jobs = [await end(store) for _ in range(5)]
    upkeep = BacklogUpkeep(store, DatabaseTime(store), BacklogLimits(3, 2**30))
    assert [(await upkeep.run_once()).discarded for _ in range(2)] == [2, 0]
    notice = await store.bus_notices.find_oldest()
    assert notice is not None
    assert (notice.kind, notice.audience, notice.reason, notice.events) == (NoticeKind.LOST, EVERYBODY, "backlog", 2)
    await teller(store, stream).run_once()
    assert [event.url.rsplit("/", 1)[1] for event in await told(stream, 3)] == jobs[2:]


@pytest.mark.parametrize("estimated", [0, 1_000])
async def test_an_estimate_decides_nothing(store: Store, monkeypatch: pytest.MonkeyPatch, estimated: int) -> None:
    """The estimate of a server that has died may be wrong."""

    async def estimate(_: Any) -> int:
        return estimated

    monkeypatch.setattr(AsyncCollection, "estimated_document_count", estimate)
    await add_owner(store)
    for _ in range(5):
        await end(store)
    for most, lost in ((5, 0), (3, 2)):
        upkeep = BacklogUpkeep(store, DatabaseTime(store), BacklogLimits(most, 2**30))
        assert (await upkeep.run_once()).discarded == lost
    assert await stored(store) == 3
