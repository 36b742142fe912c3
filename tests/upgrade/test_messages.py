"""Messages while processes of the last release run, which know nothing of them: those of this version send them all,
and the others do no harm."""

from collections import Counter
from pathlib import Path

import pytest

from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.domain.jobs.jobs import JobStatus
from shared.domain.messages.ledger import MessageState
from shared.runtime.configuration import load
from tests.e2e.house import House
from tests.providers.fakes import fake_process
from tests.providers.rules import Rule
from tests.services.worker.messages.post import BUCKET, Post, add_app

pytestmark = [pytest.mark.upgrade, pytest.mark.native]

MESSAGES = 300


@pytest.mark.slow
async def test_a_job_of_messages_beside_processes_of_the_last_release(
    house: House, release: Path, tmp_path: Path
) -> None:
    for service in ("worker", "worker", "scheduler", "feedback"):
        await house.start(service, release)
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    ours = {
        "CARILLON_BLOBS_URL": blobs.as_uri(),
        "CARILLON_BLOBS_ALLOWED_BUCKETS": BUCKET,
        "CARILLON_PROVIDERS_SECRET_KEYS": "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
        "CARILLON_PROVIDERS_ALLOWED_NETWORKS": "127.0.0.0/8",
    }
    async with fake_process("http_fake") as fake:
        await fake.answer(always=Rule(status=202))
        capabilities = Servers(load(house.environment | ours), service="test")
        post = Post(capabilities, Rooms(capabilities), fake, blobs, await add_app(capabilities))
        for service in ("worker", "scheduler"):
            await house.start(service, **ours)
        credential = await post.credential(rate=100)
        job = await post.job(credential, MESSAGES)
        single = await post.accept(credential, ["ana@example.com"])
        closed = await post.closed(job, seconds=120)
        assert closed.status is JobStatus.COMPLETED
        assert await post.states(job) == {MessageState.SENT: MESSAGES}
        assert await post.ended(single) == {MessageState.SENT: 1}
        assert set(Counter(await post.called()).values()) == {1}
        await capabilities.close()
