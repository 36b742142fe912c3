"""What is old is redacted, and later forgotten, in bounded steps that any process goes on with."""

import time
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.jobs.rules.jobs import Job
from shared.messages import retention as module
from shared.messages.receipts import ReceiptOutcome, Receipts
from shared.messages.retention import MessageRetention
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import MessageState, entry_id
from shared.providers.base import Callback, CallbackNews
from shared.runtime.clock import SystemClock
from shared.runtime.faults import arm
from shared.runtime.server_settings import ProviderSettings
from shared.store import Store
from shared.time import DatabaseTime
from tests.messages.store.ended_jobs import EVER, NOW, add_job, left, tell
from tests.tiers import and_rarely

SENT = 1_700


@pytest.fixture(autouse=True)
async def _disarmed() -> AsyncIterator[None]:
    yield
    arm("")


def retention_of(store: Store, **days: float) -> MessageRetention:
    return MessageRetention(store, DatabaseTime(store), replace(ProviderSettings(), **days))


async def age(store: Store, job: Job, days: float) -> None:
    """Let the job have ended so long ago, as far as it knows when it did."""
    since = await store.now() - timedelta(days=days)
    for field in ("personal_since", "ledger_since"):
        await store.jobs._jobs.update_one({"_id": job.id, field: {"$type": "date"}}, {"$set": {field: since}})


async def recipients(store: Store, job: Job) -> set[str]:
    return {row.to for row in await store.message_lists.page(job.incarnation, limit=100_000)}


async def test_messages_forget_their_recipients_after_their_time(store: Store) -> None:
    job, young = await add_job(store, [20, 20, 3], unsent=1), await add_job(store, [5])
    await age(store, job, 31)
    await age(store, young, 29)
    before = await store.message_sums.count(job.key)
    await retention_of(store).run_once()
    assert await recipients(store, job) == {""}
    assert len(await recipients(store, young)) == 5
    assert await store.message_sums.count(job.key) == before
    assert [kept.job.key for kept in await store.kept_ledgers.find_unredacted(EVER, limit=9)] == [young.key]


async def test_messages_go_long_after_and_their_figures_stay(store: Store) -> None:
    job, young = await add_job(store, [20, 20, 3], unsent=1), await add_job(store, [5])
    await age(store, job, 181)
    await age(store, young, 179)
    before = await store.message_sums.count(job.key)
    await retention_of(store).run_once()
    assert set((await left(store, job)).values()) == {0}
    assert await store.message_sums.count(job.key) == before
    assert (await left(store, young))["messages"] == 5
    assert (await retention_of(store).run_once()).discarded == 0


async def test_the_times_are_settings(store: Store) -> None:
    job = await add_job(store, [3])
    await age(store, job, 2)
    await retention_of(store, redact_days=1, ledger_days=3).run_once()
    assert await recipients(store, job) == {""}
    await retention_of(store, redact_days=1, ledger_days=1).run_once()
    assert await recipients(store, job) == set()


@pytest.mark.parametrize("point", and_rarely("forget.after_fold@2", rarely=("forget.after_begin", "forget.before_end")))
async def test_who_dies_while_forgetting_leaves_exact_figures_and_a_rest(store: Store, point: str) -> None:
    job = await add_job(store, [600, 500, 600], unsent=1)
    assert await tell(store, entry_id(job.incarnation, 2, 7), MessageState.FAILED, "hard-bounce")
    await age(store, job, 200)
    before = await store.message_sums.count(job.key)
    arm(f"{point}=raise")
    await retention_of(store).run_once()
    rows = {"forget.after_begin": SENT, "forget.after_fold@2": 600, "forget.before_end": 0}[point]
    assert (await left(store, job))["messages"] == rows
    assert await store.message_sums.count(job.key) == before
    assert await store.reopening.reopen_job(job, [MessageState.FAILED], at=1) is None
    late = await tell(store, entry_id(job.incarnation, 2, 8), MessageState.DELIVERED, "")
    assert late is bool(rows), "callbacks count as long as their message is there"
    during = await store.message_sums.count(job.key)
    assert (during.by_state["delivered"], during.planned, during.unsent) == (int(late), before.planned, 3)
    await retention_of(store).run_once()
    assert set((await left(store, job)).values()) == {0}
    assert await store.message_sums.count(job.key) == during


@pytest.mark.parametrize("nth", and_rarely(2, rarely=(1, 3)))
async def test_who_dies_while_redacting_is_followed_by_another(store: Store, nth: int) -> None:
    job = await add_job(store, [20] * 130)
    await age(store, job, 31)
    arm(f"redact.after_step@{nth}=raise")
    await retention_of(store).run_once()
    [kept] = await store.kept_ledgers.find_unredacted(EVER, limit=9)
    assert kept.redacted_to == 50 * (nth - 1), "what is noted was done"
    assert len(await recipients(store, job)) == 1 + 20 * (130 - min(50 * nth, 130))
    await retention_of(store).run_once()
    assert await recipients(store, job) == {""}
    assert await store.kept_ledgers.find_unredacted(EVER, limit=9) == []


async def test_a_round_is_bounded_and_the_next_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEPS", 2)
    jobs = [await add_job(store, [900, 900, 900]) for _ in range(2)]
    for job in jobs:
        await age(store, job, 200)
    seen = []
    for _ in range(8):
        await retention_of(store).run_once()
        seen.append(sum([(await left(store, job))["messages"] for job in jobs]))
    assert seen[0] == 5_400 - 2 * 900
    assert sorted(seen, reverse=True) == seen
    assert seen[-1] == 0


async def test_callbacks_of_messages_that_are_gone_are_skipped_and_counted(store: Store) -> None:
    job = await add_job(store, [3])
    await age(store, job, 200)
    await retention_of(store).run_once()
    news = CallbackNews(key=f"{entry_id(job.incarnation, 0, 1)}~1", state=MessageState.DELIVERED)
    outcomes = await Receipts(store, SystemClock()).fold(credential(), Channel.MAIL, Callback(news=(news,)))
    assert outcomes == {ReceiptOutcome.SKIPPED: 1}
    assert (await left(store, job))["tallies"] == 0


async def test_a_job_that_cannot_be_read_keeps_nobody_else_waiting(store: Store) -> None:
    broken, job = await add_job(store, [3]), await add_job(store, [3])
    await store.jobs._jobs.update_one({"_id": broken.id}, {"$set": {"options": '{"share": "x"}'}})
    await age(store, broken, 40)
    await age(store, job, 35)
    await retention_of(store).run_once()
    assert (len(await recipients(store, broken)), await recipients(store, job)) == (3, {""})


@pytest.mark.alone
async def test_each_step_of_a_large_job_is_short(store: Store) -> None:
    job = await add_job(store, [1_000] * 100)
    before = await store.message_sums.count(job.key)
    longest = 0.0
    for ordinal in range(100):
        began = time.perf_counter()
        await store.redaction.redact_batches(job.incarnation, ordinal, ordinal + 1)
        longest = max(longest, time.perf_counter() - began)
    print(f"redact 1,000 of 100,000: at most {longest:.3f} s")
    [kept] = await store.kept_ledgers.find_old(EVER, limit=9)
    assert await store.kept_ledgers.begin_forgetting(kept, duplicates=0)
    went = 0.0
    while True:
        began = time.perf_counter()
        if not await store.kept_ledgers.fold_some(job.key, rows=1_000):
            break
        went = max(went, time.perf_counter() - began)
    print(f"forget 1,000 of 100,000: at most {went:.3f} s")
    assert await store.message_sums.count(job.key) == before
    assert max(longest, went) < 20


def credential() -> Credential:
    at: datetime = NOW
    return Credential(
        id="c", app_id="a", name="main", kind="sendgrid", fields={}, rate=10, max_in_flight=20,
        test_recipient="t@example.com", created_by="a", created_at=at, updated_at=at,
    )  # fmt: skip
