"""What an account or a job becomes while messages are on their way: gone, shared no more, paused, stopped, slow."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from shared.core.errors import Conflict
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import JobStatus
from shared.messages.rules.credentials import CredentialStatus
from shared.messages.rules.ledger import MessageState
from shared.runtime import faults
from tests.providers.fakes import FakeProcess
from tests.providers.rules import Rule
from tests.services.worker.messages.post import SHORT_CALLS, Post, add_app, post_office
from tests.waiting import until

pytestmark = [pytest.mark.sending, pytest.mark.native]

ANA = Doer("user", "ana@example.com")


async def test_a_job_whose_credential_is_gone_is_not_taken_up_again(post: Post) -> None:
    credential = await post.credential(rate=0.5)
    job = await post.job(credential, 20)
    await post.has_calls(1)
    await post.rooms.jobs.flow.stop(job.key)
    stopped = await post.closed(job)
    await post.rooms.messages.credentials.remove(credential)
    with pytest.raises(Conflict, match="gone"):
        await post.rooms.messages.retry.retry(stopped, [MessageState.UNSENT], by=ANA)


async def test_a_job_ends_whose_shared_credential_goes_with_its_app(post: Post) -> None:
    credential = await post.credential(rate=1)
    job = await post.job(credential, 60)
    await post.has_calls(1)
    await post.store.credentials.remove_of(credential.app_id)  # as `DELETE /apps/{owner}` does, whoever else sends
    closed = await post.closed(job)
    assert (closed.status, closed.failure) == (JobStatus.STOPPED, "the job's credential is gone, or is another app's")


async def test_what_a_batch_that_was_given_up_left_unsent_can_be_sent_later(post: Post) -> None:
    faults.arm(",".join(f"message.after_take@{nth}=raise" for nth in (1, 2, 3)))
    try:
        job = await post.job(await post.credential(), 5)
        closed = await post.closed(job)
    finally:
        faults.arm("")
    await post.rooms.messages.retry.retry(closed, [MessageState.UNSENT, MessageState.FAILED], by=ANA)
    await post.closed(job)
    assert len(await post.called()) == 5


@pytest.mark.parametrize("settings", [SHORT_CALLS])
async def test_no_message_stays_sending_for_ever_where_its_job_is_paused_and_stopped(post: Post) -> None:
    """The batch of a lost worker is put back while its calls may go on, and dropped without another look."""
    credential = await post.credential(rate=5)
    faults.arm("message.after_write_ahead=raise")
    try:
        job = await post.job(credential, 5)

        async def is_written_ahead() -> bool:
            return (await post.states(job))[MessageState.SENDING] > 0

        await until(is_written_ahead)
        flow = post.rooms.jobs.flow
        await flow.pause(job.key)

        async def is_put_back() -> bool:
            return not any((await post.store.batches.find_on_their_way(job.key)).values())

        await until(is_put_back)
        await flow.stop(job.key)
        await post.closed(job)
    finally:
        faults.arm("")

    async def is_none_sending() -> bool:
        return MessageState.SENDING not in await post.states(job)

    await until(is_none_sending)


async def test_slow_credentials_do_not_take_all_slots_of_a_worker(
    mongo_database: str, push_database: str, tmp_path: Path, fake: FakeProcess
) -> None:
    """As 51 of 0.5/s do with the default of 100 batches in hand."""
    setting = {"CARILLON_PROVIDERS_BATCHES_IN_FLIGHT": "4"}
    async with post_office(mongo_database, push_database, tmp_path, fake, **setting) as post:
        for _ in range(3):
            await post.job(await post.credential(rate=0.5), 200)
        await post.has_calls(3)
        await post.closed(await post.job(await post.credential(rate=100), 20))


async def test_a_pause_of_the_account_does_not_have_all_batches_read_and_put_back(post: Post) -> None:
    credential = await post.credential(rate=200)
    await post.fake.answer(always=Rule(status=429, headers={"Retry-After": "3600"}))
    job = await post.job(credential, 1_000)
    await post.has_calls(1)
    await asyncio.sleep(5)
    taken = [(await post.store.batches.get(job.key, ordinal)).attempts for ordinal in range(50)]
    assert sum(taken) <= 10, "nothing may be sent, and batches were taken, read, rendered and put back"


async def test_who_goes_on_late_with_a_retry_changes_nothing(post: Post) -> None:
    """An API process that is stopped at `retry.after_job` and continued after upkeep and workers have done it all."""
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential()
    await post.fake.answer(always=Rule(status=400))
    job = await post.job(credential, 5)
    retry = post.rooms.messages.retry
    reopened = await retry.retry(await post.closed(job), [MessageState.FAILED], by=ANA)
    ended = await post.closed(job)
    await retry.go_on(reopened)
    batch = await post.store.batches.get(job.key, 0)
    stands = batch.status
    # What comes of that: the batch bears an old round, and no stop of a later one ever drops it.
    flow = post.rooms.messages.credentials
    await flow.move(await flow.require(credential.id), CredentialStatus.SUSPENDED)
    await retry.retry(ended, [MessageState.FAILED], by=ANA)
    await post.rooms.jobs.flow.stop(job.key)
    await post.closed(job)
    assert batch.settled, f"the job had ended, and its batch is {stands}"


async def test_an_app_that_may_use_a_credential_no_more_does_not_send_by_it(post: Post) -> None:
    credential = await post.credential(rate=0.5)
    owner = await add_app(post.servers)
    store = post.store.credentials
    shared = await store.change(credential, replace(credential, app_id=owner.id, shared_with=(post.app.id,)))
    job = await post.job(shared, 20)
    await post.has_calls(1)
    await post.rooms.jobs.flow.stop(job.key)
    stopped = await post.closed(job)
    await post.rooms.messages.credentials.change(shared, lambda known: replace(known, shared_with=()))
    with pytest.raises(Conflict, match="may not use"):
        await post.rooms.messages.retry.retry(stopped, [MessageState.UNSENT], by=ANA)


async def test_a_job_ends_whose_app_may_use_its_credential_no_more(post: Post) -> None:
    credential = await post.credential(rate=5)
    owner = await add_app(post.servers)
    shared = await post.store.credentials.change(
        credential, replace(credential, app_id=owner.id, shared_with=(post.app.id,))
    )
    job = await post.job(shared, 400)
    await post.has_calls(2)
    await post.rooms.messages.credentials.change(shared, lambda known: replace(known, shared_with=()))
    closed = await post.closed(job)
    assert closed.status is JobStatus.STOPPED
    assert len(await post.called()) < 400
