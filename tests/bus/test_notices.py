"""What Carillon has to tell is stored with what it tells, and published afterwards, at least once, under one id."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.bus.outbox import NoticeTeller
from shared.bus.rules.cutting import BacklogLimits
from shared.bus.rules.events import NOTICES, NOTIFIER, BusEvent
from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.core.errors import Unavailable
from shared.drivers.kafka import Stream
from shared.drivers.kafka.local import LocalStream
from shared.store import Store
from tests.bus.store.made_subscriptions import add, change
from tests.bus.test_backlogs import YEARS, bring, keep_within
from tests.bus.test_publish import publisher_of, read
from tests.bus.test_retention import Later

pytestmark = pytest.mark.native

LOG = "log"


@pytest.fixture
async def stream(tmp_path: Path) -> AsyncIterator[Stream]:
    opened = LocalStream(tmp_path / "stream.db")
    await opened.setup({LOG: 1})
    yield opened
    await opened.close()


class OffLog:
    """A log that is away."""

    async def append(self, *_: object, **__: object) -> None:
        raise Unavailable("the log is away")


def teller(store: Store, stream: Any, later: timedelta = timedelta(0)) -> NoticeTeller:
    return NoticeTeller(store, publisher_of(store, stream, LOG), Later(store, later), base_url="https://c.example/x/")


async def told(stream: Stream, count: int) -> list[BusEvent]:
    return [event for events in (await read(stream, LOG, count)).values() for event in events]


def facts_of(event: BusEvent) -> dict[str, Any]:
    assert isinstance(event.data, msgspec.Raw)
    facts: dict[str, Any] = msgspec.json.decode(event.data)
    return facts


async def left(store: Store) -> int:
    return await store._database["bus_notices"].count_documents({"way": "event"})


async def test_a_suspension_is_told_its_namespace_and_no_pause_or_removal(store: Store, stream: Stream) -> None:
    now = await store.now()
    stands, other = await add(store, "k", "a"), await add(store, "other", "a")
    assert await change(store, stands, state=SubscriptionStatus.SUSPENDED, reason="it is gone", now=now)
    assert await change(store, stands, state=SubscriptionStatus.SUSPENDED, reason="stale", now=now) is None
    paused = await change(store, other, state=SubscriptionStatus.PAUSED, now=now)
    assert paused is not None
    assert await change(store, paused, state=SubscriptionStatus.REMOVED, now=now)
    assert (await teller(store, stream).run_once()).claimed == 1
    (event,) = await told(stream, 1)
    assert (event.topic, event.type, event.audience) == (NOTICES, "subscription.suspended", stands.namespace)
    assert event.url == "https://c.example/x/bus/subscriptions/k"
    data = facts_of(event)
    assert (data["subscription"], data["reason"], set(data)) == ("k", "it is gone", {"subscription", "reason", "at"})
    topic = await store.bus_topics.get(NOTICES)
    assert topic is not None
    assert (topic.owner, await left(store)) == (NOTIFIER, 0)


async def test_a_log_that_is_away_is_tried_again_later_under_the_same_id(store: Store, stream: Stream) -> None:
    assert await change(store, await add(store, "k", "a"), state=SubscriptionStatus.SUSPENDED, now=await store.now())
    notice = await store.bus_notices.find_oldest()
    assert notice is not None
    with pytest.raises(Unavailable):
        await teller(store, OffLog()).run_once()
    assert (await teller(store, stream).run_once()).claimed == 0
    assert (await teller(store, stream, timedelta(minutes=1)).run_once()).claimed == 1
    assert [event.id for event in await told(stream, 1)] == [notice.id]
    assert await left(store) == 0


async def test_what_a_queue_loses_within_a_minute_is_told_as_one(store: Store, stream: Stream) -> None:
    deep = await add(store, "deep", "a", max_age_hours=YEARS)
    await bring(store, deep, 300)
    assert await keep_within(store, BacklogLimits(150, 2**30)) == 450
    assert (await teller(store, stream).run_once()).claimed == 0
    assert await keep_within(store, BacklogLimits(100, 2**30)) == 50
    minute = timedelta(seconds=61)
    assert (await teller(store, stream, minute).run_once()).claimed == 1
    assert await keep_within(store, BacklogLimits(90, 2**30)) == 10
    assert (await teller(store, stream, minute).run_once()).claimed == 1
    facts = [facts_of(event) for event in await told(stream, 2)]
    assert [(each["reason"], each["events"]) for each in facts] == [("backlog", 500), ("backlog", 10)]
    ends = [(each["first_at"][17:], each["last_at"][17:]) for each in facts]
    assert ends == [("01Z", "01.499Z"), ("01.500Z", "01.509Z")]
