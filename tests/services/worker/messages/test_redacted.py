"""What is redacted while it is being sent, or before it is sent again, reaches whom it is for all the same."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import Job
from shared.messages.rules.credentials import SendRetry
from shared.messages.rules.ledger import MessageState
from tests.providers.fakes import FakeProcess
from tests.services.worker.messages.post import SHORT_CALLS, Post, post_office
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.sending, pytest.mark.native]

MESSAGES = 60
ANA = Doer("user", "ana@example.com")


@pytest.fixture
def sandbox(tmp_path: Path) -> Path:
    return tmp_path / "sandbox.ndjson"


@pytest_asyncio.fixture
async def post(mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess) -> AsyncIterator[Post]:
    settings = {"CARILLON_SCHEDULER_RETENTION_SECONDS": "0.3", "CARILLON_PROVIDERS_REDACT_DAYS": "0.0001"} | SHORT_CALLS
    async with post_office(mongo_database, push_database, tmp_path, fake, **settings) as opened:
        yield opened


def reached(sandbox: Path) -> Counter[str]:
    """How often the provider was called for each recipient, but for test messages."""
    lines = [json.loads(line) for line in sandbox.read_text().splitlines()]
    return Counter(line["to"] for line in lines if not line["key"].startswith("test-"))


async def is_redacted(post: Post, job: Job) -> bool:
    return all(entry.redacted_at is not None and not entry.to for entry in await post.entries(job))


@pytest.mark.alone
async def test_messages_reach_everybody_while_they_are_redacted(post: Post, sandbox: Path) -> None:
    job = await post.job(await post.credential(kind="sandbox", fields={}, rate=30), MESSAGES)

    ended = asyncio.Event()

    async def redact_again_and_again() -> None:
        while not ended.is_set():
            await post.store.redaction.redact_batches(job.incarnation, 0, 3)
            await asyncio.sleep(0.03)

    redacting = asyncio.create_task(redact_again_and_again())
    try:
        await post.closed(job)
    finally:
        ended.set()
        await asyncio.wait_for(redacting, SECONDS)
    assert reached(sandbox) == {f"r{row}@example.com": 1 for row in range(MESSAGES)}
    assert await post.states(job) == {MessageState.SENT: MESSAGES}
    assert (await post.store.message_sums.count(job.key)).tally == {"sent": MESSAGES}


async def test_who_is_forgotten_is_found_again_by_a_retry_and_forgotten_again(post: Post, sandbox: Path) -> None:
    credential = await post.credential(kind="sandbox", fields={}, retry=SendRetry(attempts=1))
    people = [f"r{row}+lost@example.com" for row in range(5)] + ["bob@example.com"]
    job = await post.job(credential, people)
    ended = await post.closed(job)
    assert await post.states(job) == {MessageState.UNKNOWN: 5, MessageState.SENT: 1}
    await until(lambda: is_redacted(post, job))
    await post.rooms.messages.retry.retry(ended, [MessageState.UNKNOWN], by=ANA)
    await post.closed(job)
    assert reached(sandbox) == {address: 2 if "+lost" in address else 1 for address in people}
    await until(lambda: is_redacted(post, job))
    assert (await post.store.message_sums.count(job.key)).tally == {"sent": 1, "unknown": 5, "repeated": 5}
