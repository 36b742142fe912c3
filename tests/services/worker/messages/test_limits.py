"""What bounds a credential, as its workers tell while they send."""

import pytest

from shared.messages.figures import CredentialFigures
from shared.messages.rules.credentials import Credential, CredentialStanding
from shared.messages.rules.pacing import Limit
from tests.providers.rules import Rule
from tests.services.worker.messages.post import Post
from tests.waiting import until

pytestmark = [pytest.mark.sending, pytest.mark.native]


async def standing(post: Post, credential: Credential) -> CredentialStanding:
    return await CredentialFigures(post.store).measure(credential.id)


async def is_limited(post: Post, credential: Credential, limit: Limit) -> None:
    async def holds() -> bool:
        return (await standing(post, credential)).limited_by is limit

    await until(holds)


async def test_a_job_is_sent_at_the_rate_and_then_there_is_no_work(post: Post) -> None:
    credential = await post.credential(rate=20)
    job = await post.job(credential, 300)
    await is_limited(post, credential, Limit.RATE)
    await post.hasten(credential)
    await post.closed(job)
    found = await standing(post, credential)
    assert (found.limited_by, found.queue.messages, found.queue.jobs) == (Limit.WORK, 0, 0)


async def test_too_few_calls_at_a_time(post: Post) -> None:
    credential = await post.credential(rate=50, max_in_flight=1)
    await post.fake.answer(always=Rule(status=202, delay_seconds=0.4))
    await post.job(credential, 100)
    await is_limited(post, credential, Limit.IN_FLIGHT)


async def test_a_provider_that_wants_fewer(post: Post) -> None:
    credential = await post.credential(rate=100)
    await post.fake.answer(Rule(status=429, headers={"Retry-After": "60"}), always=Rule(status=202))
    await post.job(credential, 40)
    await is_limited(post, credential, Limit.PROVIDER)
    found = await standing(post, credential)
    assert 50 <= found.effective_rate < 100
    assert found.hold_until is not None
    assert found.queue.messages > 0
    assert found.queue.oldest is not None
