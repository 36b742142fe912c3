"""Single messages, from the store to the provider and the ledger."""

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.core.instants import from_ms, ms
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import CredentialStatus, SendRetry
from shared.messages.rules.ledger import Message, MessageState
from shared.messages.rules.singles import SILENCE, Pending, SingleWish
from shared.messages.rules.suppressions import SuppressionCause, suppress_address
from shared.runtime import faults
from shared.store import Store
from tests.providers.accounts import TWILIO_SID
from tests.providers.rules import Rule
from tests.services.worker.messages.post import Post
from tests.waiting import until

pytestmark = [pytest.mark.sending, pytest.mark.native]


def people(count: int) -> list[str]:
    return [f"p{number}@example.com" for number in range(count)]


async def test_single_messages_are_sent_once_each_and_forget_what_they_said(post: Post) -> None:
    credential = await post.credential()
    ids = await post.accept(credential, people(50))
    assert await post.ended(ids) == {MessageState.SENT: 50}
    assert Counter(await post.called()) == dict.fromkeys(ids, 1)
    stored = await post.store.messages.with_ids(sorted(ids))
    assert all(message.personal_since == message.ledger_since == message.answered_at for message in stored.values())

    async def is_forgotten() -> bool:
        lease = await post.store.singles.get_lease(credential.id)
        is_free = lease is not None and not lease.owner
        return is_free and await post.store.single_contents.find_missing(ids) == ids

    await until(is_forgotten)


async def test_what_comes_while_others_wait_for_an_answer_waits_for_nobody(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential, answered, calls = await post.credential(), asyncio.Event(), itertools.count()

    async def hold_first_answer(point: str) -> None:
        if point == "message.after_call" and not next(calls):
            await answered.wait()

    monkeypatch.setattr("services.worker.messages.dispatch.fault", hold_first_answer)
    slow = await post.accept(credential, ["slow@example.com"])
    await post.has_calls(1)
    assert await post.ended(await post.accept(credential, people(5))) == {MessageState.SENT: 5}
    answered.set()
    assert await post.ended(slow) == {MessageState.SENT: 1}


async def test_those_accepted_at_once_are_stored_together_and_the_same_one_once(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential, now = await post.credential(), from_ms(ms(datetime.now(UTC)))
    due = now + timedelta(hours=1)
    messages = [
        Message(
            id=f"m{number}", app_id=post.app.id, credential_id=credential.id, to=f"{number}@example.com", v=1,
            single=SingleWish(channel=Channel.OTHER, namespace="token:t", created_at=now, due=due),
            pending=Pending(credential_id=credential.id, namespace="token:t", due=due),
        )
        for number in (0, *range(49))
    ]  # fmt: skip
    stored, add = list[int](), post.store.singles.add

    async def note(some: Sequence[Message]) -> set[str]:
        stored.append(len(some))
        known: set[str] = await add(some)
        return known

    monkeypatch.setattr(post.store.singles, "add", note)
    flow = post.rooms.messages.singles
    there = await asyncio.gather(*(flow.accept([one], {one.id: '{"text":"Hi"}'}) for one in messages))
    assert there[0] == {}, "the first of the same is stored"
    assert there[1] == {"m0": messages[0]}, "and the second is told so"
    assert there[2:] == [{}] * 48
    assert sum(stored) == 49
    assert len(stored) <= 2
    assert set(await post.store.messages.with_ids([one.id for one in messages])) == {one.id for one in messages}


@pytest.mark.parametrize("silent_in", [timedelta(0), timedelta(seconds=2)], ids=["silent already", "silent soon"])
async def test_a_transaction_that_a_dead_worker_left_open_holds_up_no_others(
    post: Post, mongo_database: str, silent_in: timedelta
) -> None:
    credential = await post.credential()
    lease = await post.store.singles.want(credential.id)
    dead = Store.open(mongo_database)
    async with dead.messages.open_session() as session:
        assert await dead.singles.take(lease, owner=session.owner(lease.wanted))
        leases, now = post.store._database["send_leases"], await post.store.now()
        await leases.update_one({"_id": credential.id}, {"$set": {"changed_at": now - SILENCE + silent_in}})
        await session.own.session.start_transaction()
        touched = {"$currentDate": {"changed_at": True}}
        await dead._database["send_leases"].update_one({"_id": credential.id}, touched, session=session.own.session)
        assert await post.ended(await post.accept(credential, people(3))) == {MessageState.SENT: 3}
    await dead.close()


async def test_one_for_later_is_sent_then(post: Post) -> None:
    credential, began = await post.credential(), time.time()
    await post.accept(credential, ["much-later@example.com"], after=3_600)
    later = await post.accept(credential, ["later@example.com"], after=2)
    now = await post.accept(credential, ["now@example.com"])
    assert await post.ended(now | later) == {MessageState.SENT: 2}
    calls = {one.headers["carillon-message"].partition("~")[0]: one.at for one in (await post.fake.tell()).arrived}
    assert calls.keys() == now | later
    assert calls[min(later)] >= began + 2


async def test_one_that_comes_too_late_is_not_sent(post: Post) -> None:
    credential = await post.credential()
    expires = from_ms(ms(datetime.now(UTC))) - timedelta(seconds=1)
    ids = await post.accept(credential, ["late@example.com"], expires_at=expires)
    assert await post.ended(ids) == {MessageState.FAILED: 1}
    assert await post.called() == []


async def test_the_suppressed_get_nothing_and_the_unsubscribed_what_is_transactional(post: Post) -> None:
    credential, now = await post.credential(), datetime.now(UTC)
    await post.store.suppressions.add(
        [
            suppress_address(post.app.id, Channel.OTHER, f"{cause}@example.com", cause=cause, at=now)
            for cause in (SuppressionCause.BOUNCE, SuppressionCause.UNSUBSCRIBE)
        ]
    )
    people = ["bounce@example.com", "unsubscribe@example.com", "good@example.com"]
    needed = await post.accept(credential, people)
    assert await post.ended(needed) == {MessageState.INVALID: 1, MessageState.SENT: 2}
    offers = await post.accept(credential, people, transactional=False)
    assert await post.ended(offers) == {MessageState.INVALID: 2, MessageState.SENT: 1}
    reasons = {one.to: one.reason for one in (await post.store.messages.with_ids(sorted(offers))).values()}
    assert reasons == {people[0]: "suppressed", people[1]: "unsubscribed", people[2]: ""}
    assert len(await post.called()) == 3


async def test_an_address_that_bounces_at_once_gets_nothing_more(post: Post) -> None:
    credential = await post.credential(kind="sandbox", fields={})
    for reason in ("hard-bounce", "suppressed"):
        ids = await post.accept(credential, ["ana+bounce@example.com"])
        assert await post.ended(ids) == {MessageState.INVALID: 1}
        assert [one.reason for one in (await post.store.messages.with_ids(sorted(ids))).values()] == [reason]


async def test_a_number_that_has_said_stop_gets_nothing_more(post: Post) -> None:
    """https://www.twilio.com/docs/api/errors/21610"""
    fields = {"accountSid": TWILIO_SID, "from": "+15005550006", "apiUrl": post.fake.url}
    number, secret = "+6591234567", {"authToken": "t0ken"}
    credential = await post.credential(kind="twilio", fields=fields, secret=secret, test_recipient=number)
    stop = json.dumps({"code": 21_610, "message": "Attempt to send to unsubscribed recipient", "status": 400})
    await post.fake.answer(always=Rule(400, stop))
    ids = await post.accept(credential, [number], channel=Channel.SMS, transactional=False)
    assert await post.ended(ids) == {MessageState.INVALID: 1}
    [entry] = (await post.store.messages.with_ids(sorted(ids))).values()
    assert (entry.reason, entry.attempt) == ("unsubscribed", 1)
    found = await post.store.suppressions.find(post.app.id, Channel.SMS, [number])
    assert {(each.cause, each.list) for each in found.values()} == {(SuppressionCause.UNSUBSCRIBE, "")}


async def test_what_is_not_taken_now_is_tried_again_while_others_go_on(post: Post) -> None:
    credential = await post.credential(retry=SendRetry(attempts=3, first_delay_seconds=1))
    await post.fake.answer(Rule(status=503), Rule(status=503), always=Rule(status=202))
    ids = await post.accept(credential, people(4))
    assert await post.ended(ids) == {MessageState.SENT: 4}
    assert sorted(Counter(await post.called()).values()) == [1, 1, 2, 2]


async def test_one_that_was_cancelled_is_not_sent(post: Post) -> None:
    credential = await post.credential(rate=0.5)
    ids = await post.accept(credential, people(12))
    await post.has_calls(1)
    waiting = [one for one in (await post.store.messages.with_ids(sorted(ids))).values() if one.is_unsent]
    flow = post.rooms.messages.singles
    cancelled = {one.id for one in waiting[-3:] if await flow.cancel(one)}
    assert cancelled
    await post.hasten(credential)
    assert await post.ended(ids) == {MessageState.SENT: 12 - len(cancelled), MessageState.FAILED: len(cancelled)}
    assert not cancelled & set(await post.called())


async def test_nothing_is_sent_by_a_suspended_account_until_it_is_active(post: Post) -> None:
    credential = await post.credential()
    flow = post.rooms.messages.credentials
    suspended = await flow.move(credential, CredentialStatus.SUSPENDED)
    ids = await post.accept(credential, people(3))
    await asyncio.sleep(1)
    assert await post.called() == []
    await flow.move(suspended, CredentialStatus.ACTIVE)
    await post.rooms.messages.singles.wake(credential.id)
    assert await post.ended(ids) == {MessageState.SENT: 3}


async def test_a_refused_login_leaves_them_unsent(post: Post) -> None:
    credential = await post.credential()
    await post.fake.answer(always=Rule(status=401))
    ids = await post.accept(credential, people(3))

    async def is_rejected() -> bool:
        found = await post.store.credentials.get(credential.id)
        return found is not None and found.is_rejected

    await until(is_rejected)
    found = await post.store.messages.with_ids(sorted(ids))
    await until(lambda: are_unsent(post, ids))
    assert len(found) == 3


async def are_unsent(post: Post, ids: set[str]) -> bool:
    found = (await post.store.messages.with_ids(sorted(ids))).values()
    return all(message.is_unsent and message.pending is not None for message in found)


async def test_singles_pass_by_a_job_that_has_the_whole_rate(post: Post) -> None:
    credential = await post.credential(rate=20)
    job = await post.job(credential, 1_000)
    await post.has_calls(20)
    assert await post.ended(await post.accept(credential, people(3))) == {MessageState.SENT: 3}
    assert (await post.store.jobs.view(job.key)).open


async def test_singles_pass_by_a_job_though_one_call_at_a_time_is_allowed(post: Post) -> None:
    await post.fake.answer(always=Rule(status=202, delay_seconds=0.05))
    credential = await post.credential(rate=100, max_in_flight=1)
    job = await post.job(credential, 1_000)
    await post.has_calls(5)
    assert await post.ended(await post.accept(credential, ["ana"])) == {MessageState.SENT: 1}
    assert (await post.store.jobs.view(job.key)).open
    told = await post.fake.tell()
    assert told.counts.most == 1


async def test_a_lost_wake_up_is_found(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    credential = await post.credential()
    faults.arm("single.after_insert=raise")
    with pytest.raises(Exception, match="fault"):
        await post.accept(credential, ["lost@example.com"])
    credential_id = await post.store.singles.find_waiting(since=datetime.now(UTC) + timedelta(seconds=60))
    assert credential_id == credential.id
    monkeypatch.setattr("shared.messages.singles.SILENCE", timedelta(0))

    async def is_sent() -> bool:
        return len(await post.called()) == 1

    await until(is_sent)


async def test_who_holds_the_lease_and_is_silent_is_replaced(post: Post) -> None:
    credential = await post.credential()
    lease = await post.store.singles.want(credential.id)
    dead = post.store.messages.open_session()
    began = time.time()
    assert await post.store.singles.take(lease, owner=dead.owner(0))
    ids = await post.accept(credential, people(2))
    assert await post.ended(ids) == {MessageState.SENT: 2}
    assert min(call.at for call in (await post.fake.tell()).arrived) >= began + SILENCE.total_seconds()
    message = replace((await post.store.messages.with_ids(sorted(ids)))[min(ids)], v=0)
    assert not await post.rooms.messages.singles.cancel(message)


async def test_large_messages_hold_up_nobody(post: Post) -> None:
    credential = await post.credential(rate=500)
    large = '{"text":"' + "x" * 500_000 + '"}'
    ids = await post.accept(credential, people(60), content=large)
    assert await post.ended(ids) == {MessageState.SENT: 60}


async def test_one_that_waits_for_its_turn_beyond_its_time_is_not_sent(post: Post) -> None:
    credential = await post.credential(rate=2)
    expires = from_ms(ms(datetime.now(UTC))) + timedelta(seconds=1)
    ids = await post.accept(credential, people(8), expires_at=expires)
    states = await post.ended(ids)
    assert states[MessageState.FAILED] >= 4
    assert len(await post.called()) == states[MessageState.SENT]


async def test_what_a_dead_process_left_is_forgotten(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    credential = await post.credential(rate=1)
    flow, contents = post.rooms.messages.singles, post.store.single_contents
    await contents.add({"gone": "{}"}, at=datetime.now(UTC))
    waiting = await post.accept(credential, ["later@example.com"], after=600)
    await flow.forget_contents()
    assert await contents.find_missing({"gone", *waiting}) == set()
    monkeypatch.setattr("shared.messages.singles._KEPT_FOR", timedelta(0))
    await flow.forget_contents()
    assert await contents.find_missing({"gone", *waiting}) == {"gone"}
