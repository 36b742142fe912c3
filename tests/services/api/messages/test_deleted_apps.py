"""An app goes with all that was ever sent for it, in steps; its secrets go first, and its name comes free last."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio

from shared.accounts.removal import AppRemoval
from shared.jobs.rules.jobs import Job
from shared.messages.rules.answers import Channel
from shared.messages.rules.ledger import MessageState, News, hear
from shared.messages.rules.suppressions import SuppressionCause, suppress_address
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.runtime.faults import arm
from tests.services.api.client import Reply
from tests.services.api.messages.campaign import Campaign, campaign_at
from tests.services.api.messages.conftest import Desk
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

NOW = datetime(2026, 12, 24, tzinfo=UTC)
ROWS = 2_300


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    return await campaign_at(desk)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A removal has the time that a slow machine needs."""
    monkeypatch.setattr(AppRemoval.remove, "__kwdefaults__", {"seconds": 60.0})
    monkeypatch.setattr("shared.accounts.removal.ROUND_SECONDS", 60.0)
    yield
    arm("")


async def fill(campaign: Campaign) -> Job:
    """Two jobs that have ended, with messages, callbacks of some, suppressions, and a single message."""
    store = campaign.desk.house.store
    small, job = await campaign.made(), await campaign.made()
    await campaign.plan(small, [3])
    await campaign.note(small, 0, {0: {}})
    await campaign.plan(job, [ROWS])
    rows = []
    for first in range(0, ROWS, 100):
        rows = await campaign.note(job, 0, {row: {} for row in range(first, first + 100)})
    after = hear(rows[0], News(state=MessageState.DELIVERED, at=NOW, attempt=1))
    assert after is not None
    assert await store.messages.fold([EntryChange(rows[0], after)]) is WriteResult.DONE
    for each in (small, job):
        await campaign.close(each)
    addresses = [f"u{number}@example.com" for number in range(1_200)]
    cause = SuppressionCause.HAND
    await store.suppressions.add(
        [suppress_address(campaign.app_id, Channel.MAIL, address, cause=cause, at=NOW) for address in addresses]
    )
    await store._database["messages"].insert_one({"_id": f"single-{campaign.app_id}", "app_id": campaign.app_id})
    return job


async def left(campaign: Campaign, job: Job) -> dict[str, int]:
    of_app: dict[str, Any] = {"app_id": campaign.app_id}
    queries = dict.fromkeys(("credentials", "templates", "jobs", "messages", "suppressions"), of_app)
    queries |= {"tallies": {"_id": {"$regex": f"^{job.incarnation}"}}, "batches": {"job_id": job.key}}
    queries["apps"] = {"_id": campaign.app_id}
    database = campaign.desk.house.store._database
    return {name: await database[name].count_documents(query) for name, query in queries.items()}


async def delete(campaign: Campaign) -> Reply:
    return await campaign.desk.admin.delete(f"/apps/{campaign.app_id}")


def removal(campaign: Campaign) -> AppRemoval:
    return campaign.desk.rooms.accounts.removal


async def test_all_that_belongs_to_an_app_goes_with_it(campaign: Campaign) -> None:
    job = await fill(campaign)
    before = await left(campaign, job)
    assert min(before.values()) > 0, before
    other = await campaign_at(campaign.desk)
    kept = await fill(other)
    untouched = await left(other, kept)
    assert (await delete(campaign)).status == 204
    assert set((await left(campaign, job)).values()) == {0}
    assert await left(other, kept) == untouched


async def test_an_app_with_unfinished_jobs_keeps_everything(campaign: Campaign) -> None:
    job = await fill(campaign)
    running = await campaign.made()
    before = await left(campaign, job)
    refused = await delete(campaign)
    assert (refused.status, refused.json["field"]) == (409, "appId")
    await removal(campaign).run_once()
    assert await left(campaign, job) == before
    assert running.open


async def test_what_is_too_much_for_a_request_goes_by_itself(campaign: Campaign) -> None:
    job = await fill(campaign)
    app = (await campaign.desk.admin.get(f"/apps/{campaign.app_id}")).json
    answer = await delete_within(campaign, 0.0)
    assert answer is False
    during = await left(campaign, job)
    assert (during["credentials"], during["templates"], during["apps"]) == (0, 0, 1), "secrets go at once"
    assert during["messages"] > 0
    taken = await campaign.desk.admin.post("/apps", {"name": app["name"], "bundleId": "com.example.other"})
    assert taken.status == 409, "its name is taken until it is gone"
    template = {"name": "late", "locale": "en", "body": {"text": "Hi"}, "defaults": {}}
    late = await campaign.desk.admin.post(f"/apps/{campaign.app_id}/templates", template)
    assert late.status == 409, "it takes nothing new"
    assert (await removal(campaign).run_once()).discarded == 1
    assert set((await left(campaign, job)).values()) == {0}
    assert (await removal(campaign).run_once()).discarded == 0


async def delete_within(campaign: Campaign, seconds: float) -> bool:
    app = await campaign.desk.house.store.apps.get(campaign.app_id)
    assert app is not None
    return await removal(campaign).remove(app, seconds=seconds)


async def test_the_answer_says_that_it_goes_on(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await fill(campaign)
    monkeypatch.setattr(AppRemoval.remove, "__kwdefaults__", {"seconds": 0.0})
    accepted = await delete(campaign)
    assert (accepted.status, accepted.json["id"]) == (202, campaign.app_id)

    async def is_gone() -> bool:
        again = await delete(campaign)
        assert again.status in {202, 204}, "the same request again goes on, too"
        return again.status == 204

    await until(is_gone)
    assert set((await left(campaign, job)).values()) == {0}


@pytest.mark.parametrize(
    "point",
    and_rarely("removal.after_step", rarely=("removal.after_secrets", "removal.after_step@4", "removal.before_end")),
)
async def test_what_a_dead_process_has_begun_is_done_by_another(campaign: Campaign, point: str) -> None:
    job = await fill(campaign)
    arm(f"{point}=raise")
    assert (await delete(campaign)).status == 500
    during = await left(campaign, job)
    assert (during["credentials"], during["apps"]) == (0, 1)
    assert (await removal(campaign).run_once()).discarded == 1
    assert set((await left(campaign, job)).values()) == {0}


async def test_callbacks_at_the_same_time_leave_nothing(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first comes before a step, and the others beside all steps."""
    job, telling = await fill(campaign), list[asyncio.Task[None]]()
    store = campaign.desk.house.store

    async def tell(row: int) -> bool:
        found = await store.messages.get(f"{job.incarnation}.00000000.{row:05d}")
        after = None if found is None else hear(found, News(state=MessageState.READ, at=NOW, attempt=1))
        return after is not None and await store.messages.fold([EntryChange(found, after)]) is WriteResult.DONE

    async def tell_all() -> None:
        for row in range(20, ROWS, 20):
            await tell(row)

    async def tell_meanwhile(point: str) -> None:
        if point == "removal.after_secrets":
            assert await tell(0)
            telling.append(asyncio.create_task(tell_all()))

    monkeypatch.setattr("shared.accounts.removal.fault", tell_meanwhile)
    assert (await delete(campaign)).status == 204
    await asyncio.gather(*telling)
    assert set((await left(campaign, job)).values()) == {0}
