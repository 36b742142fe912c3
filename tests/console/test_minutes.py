"""A process adds what it did to the minutes, each count once."""

from datetime import datetime, timedelta

import pytest

from shared.console.processes import MinuteCounting
from shared.console.rules.processes import Counts
from shared.core.errors import Unavailable
from shared.runtime import metrics
from shared.store import Store
from shared.time import DatabaseTime


async def stored(store: Store) -> dict[str, object]:
    """All that was counted."""
    minutes = await store.minutes.since(await store.now() - timedelta(hours=1))
    return {
        "requests": sum(minute.requests for minute in minutes),
        "errors": sum(minute.server_errors for minute in minutes),
        "fired": sum(minute.fired.get("http/fired", 0) for minute in minutes),
        "messages": sum(minute.messages.get("accepted", 0) for minute in minutes),
        "late": sum(sum(minute.lateness.values()) for minute in minutes),
    }


async def test_what_was_counted_since_the_start_is_stored_once(store: Store) -> None:
    metrics.HTTP_REQUESTS.labels("/before", "GET", "200").inc(100)
    counting = MinuteCounting(store, DatabaseTime(store))
    await counting.store_counts()
    assert await store.minutes.since(await store.now() - timedelta(hours=1)) == []
    metrics.HTTP_REQUESTS.labels("/x", "GET", "200").inc(2)
    metrics.HTTP_REQUESTS.labels("/x", "GET", "503").inc()
    metrics.FIRED.labels("http", "fired").inc(3)
    metrics.PROVIDER_CALLS.labels("smtp", "accepted").inc(4)
    await counting.store_counts()
    metrics.LATENESS.observe(0.2)
    await counting.store_counts()
    await counting.store_counts()
    assert await stored(store) == {"requests": 3, "errors": 1, "fired": 3, "messages": 4, "late": 1}


async def test_what_could_not_be_stored_is_stored_later_and_the_rest_at_the_end(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = MinuteCounting(store, DatabaseTime(store))

    async def refuse(at: datetime, counts: Counts) -> None:
        raise Unavailable("MongoDB is away")

    metrics.HTTP_REQUESTS.labels("/x", "GET", "200").inc(2)
    with monkeypatch.context() as away:
        away.setattr(store.minutes, "add", refuse)
        await counting.store_counts()
    assert (await stored(store))["requests"] == 0
    metrics.HTTP_REQUESTS.labels("/x", "GET", "200").inc(5)
    await counting.stop()
    assert (await stored(store))["requests"] == 7
