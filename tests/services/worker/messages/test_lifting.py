"""A provider asks for a long pause, and somebody knows that it is over."""

from collections.abc import Awaitable, Callable

import pytest

from shared.messages.credentials import CredentialFlow
from shared.messages.rules.credentials import Credential, CredentialStatus
from shared.messages.rules.ledger import MessageState
from tests.providers.rules import Rule
from tests.services.worker.messages.post import SECRET, Post
from tests.waiting import until

Lift = Callable[[CredentialFlow, Credential], Awaitable[None]]

pytestmark = [pytest.mark.sending, pytest.mark.native]


async def activate_again(flow: CredentialFlow, credential: Credential) -> None:
    suspended = await flow.move(credential, CredentialStatus.SUSPENDED)
    await flow.move(suspended, CredentialStatus.ACTIVE)


async def give_new_secret(flow: CredentialFlow, credential: Credential) -> None:
    await flow.replace_secret(credential, credential.fields, {"signingSecret": SECRET})


@pytest.mark.parametrize("lift", [activate_again, give_new_secret])
async def test_a_pause_of_a_day_can_be_lifted(post: Post, lift: Lift) -> None:
    credential = await post.credential(rate=100)
    await post.fake.answer(always=Rule(status=429, headers={"Retry-After": "86400"}))
    job = await post.job(credential, 45)
    await post.has_calls(1)

    async def is_put_back() -> bool:
        return not any((await post.store.batches.find_on_their_way(job.key)).values())

    await until(is_put_back)
    await post.fake.answer(always=Rule(status=202))
    flow = post.rooms.messages.credentials
    await lift(flow, await flow.require(credential.id))
    closed = await post.closed(job)
    assert await post.states(closed) == {MessageState.SENT: 45}
