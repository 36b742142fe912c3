"""How a job by a credential stands: exact at any moment, whoever writes, and also once its batches are gone."""

import asyncio
import json
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from services.api.jobs.job_view import JobAnswers
from services.wiring.api import account_jobs
from shared.core.instants import ns
from shared.jobs.moves import fresh_incarnation
from shared.jobs.retention import JobRetention
from shared.jobs.rules.jobs import Job
from shared.messages.retention import MessageRetention
from shared.messages.rules.credentials import CredentialStatus, SendOrder
from shared.messages.rules.ledger import MessageState
from shared.runtime.server_settings import ProviderSettings
from shared.runtime.settings import SchedulerSettings
from tests.jobs.made import a_job
from tests.services.api.messages.campaign import NOW, Campaign, campaign_at
from tests.services.api.messages.conftest import Desk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SENT, FAILED, UNKNOWN = MessageState.SENT, MessageState.FAILED, MessageState.UNKNOWN


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    return await campaign_at(desk, rate=10)


async def test_every_message_is_counted_once(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [4, 3])
    made = await campaign.note(job, 0, {0: {}, 1: {"state": FAILED, "reason": "refused"}, 2: {"repeated": 1}})
    await campaign.note(job, 1, {0: {"state": UNKNOWN}})
    await campaign.hear(made[0], state=MessageState.DELIVERED, delivered_at=NOW)
    shown = await campaign.shown(job, "?exact=true")
    assert shown["messages"] == {
        "planned": 7, "unsent": 3, "sending": 0, "sent": 1, "delivered": 1, "read": 0, "failed": 1, "invalid": 0,
        "unknown": 1, "repeated": 1, "heldOut": 0, "duplicates": 0,
    }  # fmt: skip
    assert shown["reasons"] == {"refused": 1, "unknown": 1}
    [listed] = (await campaign.desk.admin.get(campaign.jobs)).json
    for view in (shown, listed):
        sums = [view[name] for name in ("totalTokens", "completedTokens", "sent", "failed", "skipped")]
        assert sums == [7, 4, 2, 2, 0], "as far as it is, though no batch is settled"


async def test_a_bounce_behind_the_end_moves_all_figures_of_the_job(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [2])
    made = await campaign.note(job, 0, {0: {}, 1: {}})
    await campaign.close(job)
    await campaign.hear(made[0], state=FAILED, reason="hard-bounce")
    shown = await campaign.shown(job, "?exact=true")
    assert (shown["messages"]["sent"], shown["messages"]["failed"]) == (1, 1)
    assert (shown["completedTokens"], shown["sent"], shown["failed"]) == (2, 1, 1)
    assert shown["reasons"] == {"hard-bounce": 1}


async def test_a_job_is_not_shown_as_ended_with_what_its_retry_sends(campaign: Campaign) -> None:
    """It is taken up again, and sends, right behind the read of its state."""
    job = await campaign.made()
    await campaign.plan(job, [2])
    await campaign.note(job, 0, {0: {}})
    await campaign.close(job)
    store, ended = campaign.desk.house.store, await campaign.ended(job)
    assert await store.reopening.reopen_job(ended, {MessageState.UNSENT}, at=2) is not None
    await campaign.note(job, 0, {1: {"state": MessageState.SENDING}})
    app = await store.apps.get(campaign.app_id)
    assert app is not None
    rooms = campaign.desk.rooms
    answer = await JobAnswers(rooms.servers.store, rooms.jobs.watch, account_jobs(rooms)).show(ended, app)
    shown = json.loads(answer.content)
    assert (shown["state"], shown["messages"]["sending"]) == ("running", 1)


async def test_a_push_job_shows_nothing_of_that(desk: Desk) -> None:
    app_id = await desk.house.app_with_template()
    made = await desk.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
    assert made.status == 201, made.body
    shown = await desk.admin.get(f"/apps/{app_id}/jobs/{made.json['id']}?exact=true")
    for view in (made.json, shown.json):
        assert not {"credentialId", "options", "messages", "queue"} & view.keys()


async def test_what_must_be_exact_is_read_now(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [5])
    assert (await campaign.shown(job))["messages"]["sent"] == 0
    await campaign.note(job, 0, {0: {}})
    assert (await campaign.shown(job, "?exact=true"))["messages"]["sent"] == 1
    assert (await campaign.shown(job))["messages"]["sent"] == 1, "who must be exact reads for all"


async def test_many_who_look_at_once_read_once(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [5])
    figures = campaign.desk.rooms.messages.figures
    first, *others = await asyncio.gather(*(figures.measure(job) for _ in range(50)))
    assert all(one is first for one in others)
    assert await figures.measure(job, exact=True) is not first


async def test_older_jobs_are_ahead_and_younger_ones_are_not(campaign: Campaign) -> None:
    older, mine, younger = [await plan_new(campaign, size) for size in (40, 20, 500)]
    await campaign.note(older, 0, {0: {}, 1: {"state": FAILED}})
    shown = await campaign.shown(mine, "?exact=true")
    assert shown["queue"] == {"jobs": 1, "messages": 38, "startsIn": 3.8}
    assert (await campaign.shown(younger, "?exact=true"))["queue"] == {"jobs": 2, "messages": 58, "startsIn": 5.8}
    now = ns(await campaign.desk.house.store.now())
    assert 5 <= (shown["estimatedEnd"] - now) / 10**9 <= 6, "38 of others and 20 of its own, 10 a second"


async def test_shares_go_side_by_side(campaign: Campaign) -> None:
    await campaign.desk.house.store.credentials._credentials.update_one(
        {"_id": campaign.credential_id}, {"$set": {"order": SendOrder.SHARES.value}}
    )
    await plan_new(campaign, 40, share=3)
    mine = await plan_new(campaign, 20, share=1)
    shown = await campaign.shown(mine, "?exact=true")
    assert shown["queue"] == {"jobs": 0, "messages": 0, "startsIn": 0}
    now = ns(await campaign.desk.house.store.now())
    assert 7 <= (shown["estimatedEnd"] - now) / 10**9 <= 8.1, "20 messages at a quarter of 10 a second"


async def test_where_nothing_leaves_nobody_tells_when(campaign: Campaign) -> None:
    job = await plan_new(campaign, 20)
    moved = await campaign.desk.house.store.credentials.move(
        campaign.credential_id, CredentialStatus.SUSPENDED, why="", at=NOW
    )
    assert moved is not None
    shown = await campaign.shown(job, "?exact=true")
    assert (shown["queue"]["startsIn"], shown["estimatedEnd"]) == (None, 0)
    paused = await campaign.desk.admin.put(f"{campaign.jobs}/{job.id}/pause")
    assert paused.json["queue"] == {"jobs": 0, "messages": 0, "startsIn": None}
    assert paused.json["messages"]["planned"] == 20


async def test_a_job_that_has_not_ended_is_not_retried(campaign: Campaign) -> None:
    job = await plan_new(campaign, 5)
    answer = await campaign.desk.admin.post(f"{campaign.jobs}/{job.id}/retry", {})
    assert (answer.status, answer.json["field"], answer.json["value"]) == (409, "status", "running")


async def test_a_misspelt_field_retries_nothing(campaign: Campaign) -> None:
    job = await plan_new(campaign, 1)
    answer = await campaign.desk.admin.post(f"{campaign.jobs}/{job.id}/retry", {"state": ["unsent"]})
    assert (answer.status, answer.json["field"]) == (422, "state")
    assert "did you mean states?" in answer.json["reason"]


async def test_the_figures_outlive_the_batches(campaign: Campaign) -> None:
    house, rooms = campaign.desk.house, campaign.desk.rooms
    job = replace(a_job(), **_of(await campaign.made()))
    await house.store.jobs.add(job)
    await campaign.plan(job, [4, 3])
    repeats = {"$set": {"range.repeated": [[2, 0], [2, 1]]}}
    await house.store.batches._batches.update_one({"job_id": job.key, "ordinal": 1}, repeats)
    made = await campaign.note(job, 0, {0: {}, 1: {"state": FAILED, "reason": "refused"}})
    await campaign.hear(made[0], state=MessageState.DELIVERED)
    await campaign.close(job)
    before = await campaign.shown(job, "?exact=true")
    assert before["messages"]["duplicates"] == 2
    jobs = JobRetention(house.store, house.servers.time, rooms.jobs.kinds, SchedulerSettings())
    await jobs.run_once()
    assert await house.store.batches.get(job.key, 0) is not None, "messages keep their batches for longer"
    retention = MessageRetention(house.store, house.servers.time, ProviderSettings())
    await retention.run_once()
    assert await house.store.batches.get(job.key, 0) is None
    assert await house.store.messages.get(made[0].id) is None
    after = await campaign.shown(job, "?exact=true")
    assert after["messages"] == before["messages"]
    assert after["reasons"] == before["reasons"] == {"refused": 1}
    sums = ("totalTokens", "completedTokens", "sent", "failed")
    assert [after[name] for name in sums] == [before[name] for name in sums] == [7, 2, 1, 1]
    answer = await campaign.desk.admin.post(f"{campaign.jobs}/{job.id}/retry", {"states": ["failed"]})
    assert (answer.status, answer.json["detail"]) == (409, "the messages of this job are forgotten")


def _of(job: Job) -> dict[str, Any]:
    """What a job over a table has in common with this one, which is over a file."""
    names = ("app_id", "app_name", "service", "credential_id", "table_kind", "options")
    return {name: getattr(job, name) for name in names} | {"incarnation": fresh_incarnation()}


async def plan_new(campaign: Campaign, size: int, **fields: int) -> Job:
    job = await campaign.made(**fields)
    await campaign.plan(job, [size])
    campaign.desk.house.clock.advance(1)
    return job
