"""Dry runs: all is read and judged as ever, and nobody is called."""

from datetime import UTC, datetime

import pytest

from shared.core.errors import Conflict
from shared.jobs.rules.events import Doer
from shared.jobs.rules.jobs import JobStatus
from shared.messages.rules.answers import Channel
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.suppressions import SuppressionCause, suppress_address
from shared.messages.store_credentials import Credentials
from shared.runtime import faults
from tests.services.worker.messages.post import Post

pytestmark = [pytest.mark.sending, pytest.mark.native]


async def test_it_counts_what_would_be_sent_and_writes_nothing(post: Post) -> None:
    people = [*(f"r{row}@example.com" for row in range(45)), "no address", "", " ", "R0@EXAMPLE.com", "r1@EXAMPLE.com"]
    credential = await post.credential()
    barred = suppress_address(
        post.app.id, Channel.MAIL, "r2@example.com", cause=SuppressionCause.HAND, at=datetime.now(UTC)
    )
    await post.store.suppressions.add([barred])
    job = await post.job(credential, people, channel=Channel.MAIL, dry_run=True)
    ended = await post.closed(job)
    assert ended.status is JobStatus.COMPLETED
    assert ended.totals is not None
    assert (ended.totals.sent, ended.totals.skipped, ended.totals.failed) == (45, 4, 0)
    counts = await post.rooms.messages.figures.count(ended)
    assert counts.by_state == {state.value: 0 for state in MessageState if state.value != "unsent"} | {
        "sent": 45,
        "invalid": 4,
    }
    assert (counts.planned, counts.unsent, counts.duplicates) == (49, 0, 1)
    assert counts.reasons == {"malformed": 3, "suppressed": 1}
    assert await post.entries(job) == []
    assert await post.called() == []


async def test_what_is_too_long_once_it_is_filled_is_judged_as_when_it_is_sent(post: Post) -> None:
    """Names of two, three and four characters, five hundred times each."""
    [template] = await post.store.templates.find_named(post.app.id, ["hello"])
    body = {"text": "{{name}}" * 500}
    await post.store.templates.update(
        post.app.id, template.id, name="hello", locale="en", body=body, defaults=None, at=1
    )
    credential = await post.credential(
        kind="twilio",
        fields={"accountSid": "AC" + "a" * 32, "from": "+6591234567", "apiUrl": post.fake.url},
        secret={"authToken": "hush"},
        test_recipient="+6591234567",
    )
    numbers = [f"+659123{number:04}" for number in range(105)]
    for dry_run, kept in ((True, 0), (False, 5)):
        ended = await post.closed(await post.job(credential, numbers, channel=Channel.SMS, dry_run=dry_run))
        counts = await post.rooms.messages.figures.count(ended)
        assert (counts.by_state["sent"], counts.by_state["invalid"], counts.reasons) == (100, 5, {"unrendered": 5})
        details = [entry.detail for entry in await post.entries(ended) if entry.reason]
        assert details == ["an SMS needs 1 to 1,600 characters"] * kept


async def test_it_takes_nothing_of_the_rate_and_waits_for_nobody(post: Post) -> None:
    slow = await post.credential(rate=0.02)
    waiting = await post.job(slow, 3)
    await post.has_calls(1)
    before = await post.store.credentials.get_traffic(slow.id)
    await post.closed(await post.job(slow, 120, dry_run=True))
    after = await post.store.credentials.get_traffic(slow.id)
    assert before is not None and after is not None
    assert after.pace.last_us - before.pace.last_us <= 80_000_000, "one instant of the other job at most"
    assert {place.rank[2] for place in after.places} <= {waiting.key}
    assert len(await post.called()) <= 2


async def test_it_takes_no_place_and_no_job_waits_behind_it(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.messages.feeding._JOBS_LOOKED_AT", 3)
    credential = await post.credential()
    dry = [await post.job(credential, 60, dry_run=True) for _ in range(5)]
    jobs = post.store.message_jobs
    assert {job.key for job in await jobs.find_running(credential.id, limit=9)} == set()
    assert {job.key for job in await jobs.find_dry_runs(credential.id, limit=9)} <= {job.key for job in dry}
    sent = await post.job(credential, 5)
    for job in (*dry, sent):
        await post.closed(job)
    assert len(await post.called()) == 5


async def test_it_is_found_as_one_and_changes_nothing_of_the_account(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def change_nothing(*_: object) -> bool:
        raise AssertionError("a dry run has changed the account's places")

    credential = await post.credential()
    monkeypatch.setattr(Credentials, "change_traffic", change_nothing)
    await post.closed(await post.job(credential, 60, dry_run=True))


async def test_a_worker_that_fails_in_between_counts_nothing_twice(post: Post) -> None:
    credential = await post.credential()
    faults.arm("message.after_take=raise")
    try:
        ended = await post.closed(await post.job(credential, 30, dry_run=True))
    finally:
        faults.arm("")
    counts = await post.rooms.messages.figures.count(ended)
    assert (counts.planned, counts.by_state["sent"]) == (30, 30)


async def test_it_cannot_be_sent_again(post: Post) -> None:
    ended = await post.closed(await post.job(await post.credential(), 1, dry_run=True))
    with pytest.raises(Conflict):
        await post.rooms.messages.retry.retry(ended, [MessageState.FAILED], by=Doer("user", "ana"))
