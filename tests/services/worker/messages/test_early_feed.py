"""Feeding beside the sending: once at a time, awaited at the end, and nobody's fault."""

import asyncio
from typing import Any

import pytest

from services.worker.messages.send import EarlyFeed

pytestmark = pytest.mark.sending


async def test_a_credential_is_fed_once_at_a_time_and_the_end_waits_for_it() -> None:
    fed, may_end = list[str](), asyncio.Event()

    class Feed:
        async def feed_credential(self, credential_id: str) -> None:
            await may_end.wait()
            fed.append(credential_id)

    feed: Any = Feed()
    early = EarlyFeed(feed)
    for credential_id in ("a", "a", "b"):
        early.begin(credential_id)
    closing = asyncio.create_task(early.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    may_end.set()
    await closing
    assert sorted(fed) == ["a", "a", "b"]


async def test_a_feed_that_is_wanted_meanwhile_follows_once() -> None:
    """What it would find may have come behind the look of the first one."""
    running, fed = 0, list[int]()

    class Feed:
        async def feed_credential(self, _: str) -> None:
            nonlocal running
            running += 1
            fed.append(running)
            await asyncio.sleep(0.01)
            running -= 1

    feed: Any = Feed()
    early = EarlyFeed(feed)
    early.begin("a")
    await asyncio.sleep(0)
    for _ in range(5):
        early.begin("a")
    await early.close()
    assert fed == [1, 1], "one after the other"


async def test_what_fails_is_nobodys_fault_and_may_begin_again() -> None:
    calls = list[str]()

    class Feed:
        async def feed_credential(self, credential_id: str) -> None:
            calls.append(credential_id)
            raise RuntimeError("another job's document cannot be read")

    feed: Any = Feed()
    early = EarlyFeed(feed)
    for _ in range(2):
        early.begin("a")
        await early.close()
    assert calls == ["a", "a"]
