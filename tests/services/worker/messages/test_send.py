"""Jobs that send messages, from their file to the provider and the ledger."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from services.wiring.rooms import Rooms
from services.wiring.workers import build_stages
from shared.core.errors import Conflict
from shared.core.tasks import encode
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import JobStatus
from shared.messages.feeding import CredentialFeed
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import CredentialStatus, OnUnknown, SendOrder, SendRetry
from shared.messages.rules.jobs import Halt
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.singles import MESSAGE_QUEUE, SendMessages
from shared.messages.rules.suppressions import SuppressionCause
from shared.runtime import faults
from shared.runtime.cached import CachedByKey
from tests.providers.rules import Rule
from tests.services.worker.messages.post import SECRET, Post
from tests.waiting import until

pytestmark = [pytest.mark.sending, pytest.mark.native]

ANA = Doer("user", "ana@example.com")


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[Batch]:
    """The batches that were queued, in their order."""
    batches, publish = list[Batch](), CredentialFeed._publish

    async def note(self: CredentialFeed, found: Batch) -> Batch | None:
        batch = await publish(self, found)
        batches.extend([] if batch is None else [batch])
        return batch

    monkeypatch.setattr(CredentialFeed, "_publish", note)
    return batches


@pytest.mark.proof
async def test_a_job_sends_one_message_to_each_recipient(post: Post) -> None:
    job = await post.job(await post.credential(), 100)
    closed = await post.closed(job)
    assert closed.status is JobStatus.COMPLETED
    assert closed.totals is not None
    assert (closed.totals.batches, closed.totals.planned, closed.totals.sent) == (5, 100, 100)
    assert await post.states(job) == {MessageState.SENT: 100}
    assert Counter(await post.called()) == {entry.id: 1 for entry in await post.entries(job)}
    tally = (await post.store.message_sums.count(job.key)).tally
    assert tally == {"sent": 100}
    bodies = {one.body for one in (await post.fake.tell()).arrived}
    assert bodies == {f'{{"text":"Hi n{row}"}}' for row in range(100)}


async def test_a_job_that_has_ended_is_told_as_it_ended(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short before somebody looked."""
    messages = post.rooms.messages
    monkeypatch.setattr(messages.figures, "_figures", CachedByKey(seconds=3_600.0))
    suspended = await messages.credentials.move(await post.credential(), CredentialStatus.SUSPENDED)
    job = await post.job(suspended, 3)
    early = await messages.figures.measure(job)
    await messages.credentials.move(suspended, CredentialStatus.ACTIVE)
    await messages.feed.feed_credential(suspended.id)
    late = await messages.figures.measure(await post.closed(job))
    assert (early.counts.by_state["sent"], late.counts.by_state["sent"]) == (0, 3)


async def test_who_cannot_be_written_to_is_told_and_not_called(post: Post) -> None:
    people = ["ana@example.com", "nobody", "Ana@EXAMPLE.com", "ana@example.COM", "bob@example.com"]
    job = await post.job(await post.credential(), people, channel=Channel.MAIL)
    closed = await post.closed(job)
    assert closed.totals is not None
    assert (closed.totals.planned, closed.totals.sent, closed.totals.skipped) == (4, 3, 1)
    assert closed.reasons == {"malformed": 1}
    assert len(await post.called()) == 3


async def test_what_is_not_taken_now_is_tried_again_and_given_up(post: Post) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential(retry=SendRetry(attempts=2, first_delay_seconds=0.3))
    await post.fake.answer(*[Rule(status=503)] * 3, always=Rule(status=202))
    job = await post.job(credential, 10)
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 10}
    assert Counter(Counter(await post.called()).values()) == {1: 7, 2: 3}
    await post.fake.answer(always=Rule(status=503))
    job = await post.job(credential, 5)
    closed = await post.closed(job)
    assert closed.totals is not None
    assert closed.totals.failed == 5
    assert closed.reasons == {"gave-up": 5}


@pytest.mark.proof
async def test_nobody_knows_what_came_of_a_call_without_an_answer(post: Post) -> None:
    credential = await post.credential()
    await post.fake.answer(Rule(status=500), always=Rule(status=202))
    job = await post.job(credential, 10, on_unknown=OnUnknown.HOLD)
    closed = await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 9, MessageState.UNKNOWN: 1}
    assert closed.reasons == {"unknown": 1}
    assert len(await post.called()) == 10


async def test_what_nobody_knows_is_sent_again_where_the_job_wants_it(post: Post) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential(retry=SendRetry(attempts=2, first_delay_seconds=0.2))
    await post.fake.answer(*[Rule(status=500)] * 2, always=Rule(status=202))
    job = await post.job(credential, 10, on_unknown=OnUnknown.RETRY)
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 10}
    assert sorted(entry.repeated for entry in await post.entries(job)) == [0] * 8 + [1] * 2
    assert (await post.store.message_sums.count(job.key)).tally == {"sent": 10, "repeated": 2}
    await post.fake.answer(always=Rule(status=500))
    job = await post.job(credential, 3, on_unknown=OnUnknown.RETRY)
    await post.closed(job)
    assert await post.states(job) == {MessageState.UNKNOWN: 3}
    assert {entry.repeated for entry in await post.entries(job)} == {1}


async def test_a_paused_job_stops_and_goes_on(post: Post) -> None:
    """200 messages at four a second: it stops long before they are sent."""
    flow, credential = post.rooms.jobs.flow, await post.credential(rate=4)
    job = await post.job(credential, 200)
    await post.has_calls(3)
    assert await flow.pause(job.key) is not None

    async def is_put_back() -> bool:
        found = await post.store.batches.find_on_their_way(job.key)
        return not any(found.values())

    await until(is_put_back)
    called = await post.called()
    assert len(called) < 200
    assert (await post.states(job)).keys() <= {MessageState.SENT, MessageState.UNSENT}
    await asyncio.sleep(0.5)
    assert await post.called() == called
    await post.hasten(credential)
    await flow.resume(job.key)
    await post.closed(job)
    assert Counter(await post.called()) == {entry.id: 1 for entry in await post.entries(job)}


async def test_a_stopped_job_leaves_the_rest_unsent(post: Post) -> None:
    job = await post.job(await post.credential(rate=4), 200)
    await post.has_calls(3)
    await post.rooms.jobs.flow.stop(job.key)
    closed = await post.closed(job)
    assert closed.status is JobStatus.STOPPED
    called = await post.called()
    assert len(called) < 200
    tally = (await post.store.message_sums.count(job.key)).tally
    assert tally == {"sent": len(called)}
    assert closed.totals is not None
    assert (closed.totals.planned, closed.totals.sent) == (200, len(called))


async def test_the_older_job_of_a_credential_goes_first(post: Post, queued: list[Batch]) -> None:
    credential = await post.credential(rate=100)
    older = await post.job(credential, 120)

    async def is_planned() -> bool:
        return await post.store.batches.get(older.key, 5) is not None  # the last of six

    await until(is_planned)
    younger = await post.job(credential, 60)
    await post.closed(older)
    await post.closed(younger)
    assert [batch.job_id for batch in queued] == [older.key] * 6 + [younger.key] * 3


async def test_a_refused_login_holds_the_credential(post: Post) -> None:
    credential = await post.credential()
    await post.fake.answer(always=Rule(status=401))
    job = await post.job(credential, 30)

    async def is_rejected() -> bool:
        found = await post.store.credentials.get(credential.id)
        return found is not None and not found.sends

    await until(is_rejected)

    async def is_given_back() -> bool:
        return (await post.states(job)).keys() <= {MessageState.UNSENT}

    await until(is_given_back)
    await post.fake.answer(always=Rule(status=202))
    flow = post.rooms.messages.credentials
    known = await flow.require(credential.id)
    await flow.replace_secret(known, known.fields, {"signingSecret": SECRET})
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 30}


async def test_a_stopped_job_is_taken_up_again_and_leaves_alone_what_has_arrived(post: Post) -> None:
    """Twenty messages, one every three seconds, stopped after the first."""
    credential = await post.credential(rate=0.5)
    job = await post.job(credential, 20)
    await post.has_calls(1)
    await post.rooms.jobs.flow.stop(job.key)
    stopped = await post.closed(job)
    first = await post.called()
    assert (await post.states(job))[MessageState.SENT] == len(first) < 20
    await post.hasten(credential)
    retry = post.rooms.messages.retry
    with pytest.raises(Conflict, match=r"no failed messages; it has \d+ unsent"):
        await retry.retry(stopped, [MessageState.FAILED], by=ANA)
    with pytest.raises(Conflict):
        await retry.retry(replace(stopped, round=7), [MessageState.UNSENT], by=ANA)
    again = await retry.retry(stopped, [MessageState.UNSENT], by=ANA)
    assert again.open
    assert not await post.store.batches.drop_unsent(job.key, stopped.round), "who stopped it may come late"
    with pytest.raises(Conflict):
        await retry.retry(stopped, [MessageState.UNSENT], by=ANA)
    closed = await post.closed(job)
    assert closed.status is JobStatus.COMPLETED
    assert Counter(await post.called()) == {entry.id: 1 for entry in await post.entries(job)}
    assert await post.states(job) == {MessageState.SENT: 20}


async def test_what_failed_is_sent_again_and_nothing_else(post: Post) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential(retry=SendRetry(attempts=1))
    await post.fake.answer(*[Rule(status=400)] * 2, Rule(status=500), always=Rule(status=202))
    job = await post.job(credential, 30)
    ended = await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 27, MessageState.FAILED: 2, MessageState.UNKNOWN: 1}
    retry = post.rooms.messages.retry
    await retry.retry(ended, [MessageState.FAILED], by=ANA)
    ended = await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 29, MessageState.UNKNOWN: 1}
    assert ended.totals is not None
    assert (ended.totals.planned, ended.totals.sent, ended.totals.failed) == (30, 29, 1)
    with pytest.raises(Conflict, match="the job has no failed messages; it has 1 unknown"):
        await retry.retry(ended, [MessageState.FAILED], by=ANA)
    await retry.retry(ended, [MessageState.UNKNOWN], by=ANA)
    await post.closed(job)
    assert (await post.store.message_sums.count(job.key)).tally == {"sent": 30, "repeated": 1}
    assert Counter(Counter(await post.called()).values()) == {1: 27, 2: 3}


async def test_refusals_and_lost_calls_hold_no_job(post: Post) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential(retry=SendRetry(attempts=1))
    await post.fake.answer(*[Rule(status=400)] * 15, *[Rule(status=500)] * 5, always=Rule(status=202))
    job = await post.job(credential, 40, batch_size=10)
    assert (await post.closed(job)).status is JobStatus.COMPLETED
    assert await post.states(job) == {MessageState.SENT: 20, MessageState.FAILED: 15, MessageState.UNKNOWN: 5}


async def test_a_job_that_bounces_is_held_and_counts_anew_when_it_goes_on(post: Post) -> None:
    await post.fake.answer(always=Rule(status=202))
    credential = await post.credential(kind="sandbox", fields={}, rate=50)
    people = [f"r{row}{'+bounce' if row < 15 else ''}@example.com" for row in range(200)]
    # Whoever looks does so every second. 11 of 15 hold the job; what may bounce after it goes on is too few for that.
    job = await post.job(credential, people, halt=Halt(share=0.05, minimum=10))

    async def is_held() -> bool:
        found = await post.store.jobs.view(job.key)
        return found is not None and found.status is JobStatus.TRIPPED

    await until(is_held)
    await post.rooms.jobs.flow.resume(job.key)
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 185, MessageState.INVALID: 15}
    barred = await post.store.suppressions.page(post.app.id, limit=99)
    assert {bar.address for bar in barred} == {*people[:15]}
    assert {(bar.channel, bar.cause) for bar in barred} == {(Channel.OTHER, SuppressionCause.BOUNCE)}


async def test_a_task_that_comes_twice_changes_nothing(post: Post) -> None:
    credential = await post.credential(rate=4)
    job = await post.job(credential, 100, batch_size=100)
    await post.has_calls(3)
    batch = await post.store.batches.get(job.key, 0)
    assert batch.owner
    for _ in range(3):
        await post.servers.broker.publish(MESSAGE_QUEUE, encode(SendMessages(job.key, 0, batch.turn)))
    await post.hasten(credential)
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 100}
    assert set(Counter(await post.called()).values()) == {1}


async def test_a_batch_of_a_lost_worker_is_taken_up_as_soon_as_the_broker_delivers_it_again(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_silent(*_: Any) -> bool:
        return True

    monkeypatch.setattr("services.worker.messages.send.falls_silent", is_silent)
    credential = await post.credential(rate=4)
    job = await post.job(credential, 40, batch_size=40)
    await post.has_calls(3)
    batch = await post.store.batches.get(job.key, 0)
    task = SendMessages(job.key, 0, batch.turn)
    [heir] = [stage for stage in build_stages(Rooms(post.servers)) if stage.task is SendMessages]
    await heir.run(task)
    assert (await post.store.batches.get(job.key, 0)).turn == batch.turn
    await heir.run_again(task)
    assert (await post.store.batches.get(job.key, 0)).turn > batch.turn
    await post.hasten(credential)
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 40}
    assert set(Counter(await post.called()).values()) == {1}


async def test_by_shares_a_large_job_does_not_hold_up_a_small_one(post: Post, queued: list[Batch]) -> None:
    credential = await post.credential(rate=50, order=SendOrder.SHARES)
    large = await post.job(credential, 1_500)  # 75 batches, in 45 s
    await post.has_calls(1)
    small = await post.job(credential, 60)
    await post.closed(small)
    jobs = [batch.job_id for batch in queued]
    first, _, last = (place for place, job in enumerate(jobs) if job == small.key)
    assert jobs[first:last].count(large.key) <= 4, "as many as the small one, and one in hand"
    assert jobs[:last].count(large.key) < 75, "it did not wait for the large one"
    await post.rooms.jobs.flow.stop(large.key)
    await post.closed(large)


@pytest.mark.parametrize("order", SendOrder)
async def test_jobs_that_wait_for_another_attempt_hide_no_other(
    post: Post, monkeypatch: pytest.MonkeyPatch, order: SendOrder
) -> None:
    monkeypatch.setattr("shared.messages.feeding._PAGE", 3)
    retry = SendRetry(first_delay_seconds=300, cap_seconds=300)
    credential = await post.credential(order=order, retry=retry)
    await post.fake.answer(always=Rule(status=503))
    waiting = [await post.job(credential, 1) for _ in range(7)]

    async def all_wait() -> bool:
        batches = [await post.store.batches.get(job.key, 0) for job in waiting]
        return all(batch is not None and batch.status is BatchStatus.PLANNED for batch in batches)

    await post.has_calls(7)
    await until(all_wait)
    await post.fake.answer(always=Rule(status=202))
    await post.closed(await post.job(credential, 5))


async def test_who_loses_a_race_for_a_place_does_not_look_for_a_batch_anew(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, looks, change, find = 0, 0, CredentialFeed._change, CredentialFeed._find_next

    async def lose(self: CredentialFeed, *args: Any) -> bool:
        nonlocal lost
        lost += 1
        return lost > 12 and await change(self, *args)

    async def look(self: CredentialFeed, *args: Any, **kwargs: Any) -> Any:
        nonlocal looks
        looks += 0 < lost <= 12
        return await find(self, *args, **kwargs)

    monkeypatch.setattr(CredentialFeed, "_change", lose)
    monkeypatch.setattr(CredentialFeed, "_find_next", look)
    await post.closed(await post.job(await post.credential(), 5))
    assert lost > 12
    assert looks <= 3, "one for each who feeds"


async def test_a_batch_that_is_due_again_when_it_is_put_back_is_sent_at_once(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task comes while the process that has put it back still feeds."""
    publish = CredentialFeed._publish

    async def publish_and_be_slow(self: CredentialFeed, found: Any) -> Any:
        published = await publish(self, found)
        await asyncio.sleep(0.1)
        return published

    monkeypatch.setattr(CredentialFeed, "_publish", publish_and_be_slow)
    credential = await post.credential(rate=20, retry=SendRetry(first_delay_seconds=1, cap_seconds=1))
    await post.fake.answer(*[Rule(status=503)] * 2, always=Rule(status=202))
    job = await post.job(credential, 2)
    await post.closed(job)
    assert await post.states(job) == {MessageState.SENT: 2}
    batch = await post.store.batches.get(job.key, 0)
    assert batch.turn <= 3, "nobody had to find it again"


async def test_another_attempt_does_not_wait_for_the_whole_job(
    post: Post, queued: list[Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes longer than the pause before the other attempt."""
    monkeypatch.setattr("shared.messages.feeding._REMEMBERED_SECONDS", 0.2)
    credential = await post.credential(rate=50, retry=SendRetry(first_delay_seconds=0.2, cap_seconds=0.2))
    await post.fake.answer(Rule(status=503), always=Rule(status=202))
    job = await post.job(credential, 200)
    await post.closed(job)
    ordinals = [batch.ordinal for batch in queued]
    [again] = [place for place, ordinal in enumerate(ordinals) if ordinal in ordinals[:place]]
    assert again < ordinals.index(9), "its batch is put back into a plan that has others"


async def test_credentials_do_not_wait_for_each_other(post: Post) -> None:
    slow, quick = await post.credential(rate=0.1), await post.credential(rate=100)
    waiting = await post.job(slow, 60)
    await post.has_calls(1)
    await post.closed(await post.job(quick, 60))
    assert (await post.store.jobs.view(waiting.key)).open


async def test_a_job_for_later_holds_up_nobody(post: Post) -> None:
    credential = await post.credential(rate=100)
    later = await post.job(credential, 20, starts_in=3600)
    await post.closed(await post.job(credential, 20))
    assert (await post.store.jobs.view(later.key)).status is JobStatus.SCHEDULED


async def test_a_batch_that_nobody_can_send_is_given_up(post: Post) -> None:
    faults.arm(",".join(f"message.after_take@{nth}=raise" for nth in (1, 2, 3)))
    try:
        job = await post.job(await post.credential(), 5)
        closed = await post.closed(job)
    finally:
        faults.arm("")
    assert closed.totals is not None
    assert (closed.totals.settled, closed.totals.planned, closed.totals.done) == (1, 5, 0)
    assert await post.called() == []


async def test_a_fault_that_passes_costs_one_more_try(post: Post) -> None:
    faults.arm("message.before_settle=raise")
    try:
        job = await post.job(await post.credential(), 5)
        await post.closed(job)
    finally:
        faults.arm("")
    assert await post.states(job) == {MessageState.SENT: 5}
    assert len(await post.called()) == 5
