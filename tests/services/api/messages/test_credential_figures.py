"""How a credential stands: how fast it sends, what bounds it, and what waits for it."""

import pytest
import pytest_asyncio

from shared.core.instants import format_instant, from_ns, ms
from shared.messages.rules.credentials import CredentialStatus
from shared.messages.rules.ledger import MessageState
from tests.services.api.messages.campaign import NOW, Campaign, campaign_at
from tests.services.api.messages.conftest import Desk

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@pytest_asyncio.fixture(loop_scope="module")
async def campaign(desk: Desk) -> Campaign:
    return await campaign_at(desk, rate=10)


async def shown(campaign: Campaign, app_id: str = "") -> dict[str, object]:
    path = f"/apps/{app_id or campaign.app_id}/credentials/{campaign.credential_id}"
    answer = await campaign.desk.admin.get(path)
    assert answer.status == 200, answer.body
    found: dict[str, object] = answer.json
    return found


def told(credential: dict[str, object]) -> dict[str, object]:
    return {name: credential[name] for name in ("effectiveRate", "limitedBy", "holdUntil", "queue")}


async def test_an_idle_one_has_no_work(campaign: Campaign) -> None:
    assert told(await shown(campaign)) == {
        "effectiveRate": 10.0,
        "limitedBy": "work",
        "holdUntil": None,
        "queue": {"jobs": 0, "messages": 0, "held": 0, "oldestUnsent": None},
    }


async def test_what_waits_is_counted_over_its_open_jobs(campaign: Campaign) -> None:
    first, paused, last = [await campaign.made() for _ in range(3)]
    for job, sizes in ((first, [4, 3]), (paused, [5]), (last, [2])):
        await campaign.plan(job, sizes)
    await campaign.note(first, 0, {0: {}, 1: {"state": MessageState.FAILED, "reason": "refused"}})
    held = await campaign.desk.admin.put(f"{campaign.jobs}/{paused.id}/pause")
    assert held.status == 200, held.body
    queue = (await shown(campaign))["queue"]
    since = format_instant(from_ns(first.created_at))
    assert queue == {"jobs": 3, "messages": 12, "held": 5, "oldestUnsent": since}


async def test_a_slowed_one_tells_its_rate_and_its_pause(campaign: Campaign) -> None:
    job = await campaign.made()
    await campaign.plan(job, [5])
    store = campaign.desk.house.store
    now_us = ms(await store.now()) * 1_000
    pace = {"pace.share": 0.25, "pace.slowed_us": now_us, "pace.hold_until_us": now_us + 60_000_000}
    await store.credentials._credentials.update_one({"_id": campaign.credential_id}, {"$set": pace})
    found = await shown(campaign)
    assert (found["effectiveRate"], found["limitedBy"]) == (2.5, "provider")
    assert found["holdUntil"] is not None


async def test_one_that_does_not_send_sends_nothing(campaign: Campaign) -> None:
    store = campaign.desk.house.store
    assert await store.credentials.move(campaign.credential_id, CredentialStatus.SUSPENDED, why="", at=NOW)
    found = await shown(campaign)
    assert (found["effectiveRate"], found["limitedBy"]) == (0, None)


async def test_who_shares_it_sees_what_waits_for_it_too(desk: Desk, campaign: Campaign) -> None:
    other = await campaign_at(desk)
    lent = await campaign.credential(name="lent-on", shared_with=(other.app_id,))
    job = await campaign.made(credential=lent.id)
    await campaign.plan(job, [5])
    answer = await desk.admin.get(f"/apps/{other.app_id}/credentials/{lent.id}")
    assert (answer.status, answer.json["redacted"], answer.json["queue"]["messages"]) == (200, True, 5)
