"""Every method for push jobs, against the real API."""

import asyncio
import uuid
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from carillon import AsyncCarillon, Conflict, Invalid, LocaleCount, NotFound, PushJob, ZoneCount
from shared.core.instants import EPOCH
from shared.jobs.rules.events import Event, EventState
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

JOB = PushJob(service="apns", template="like", filters={"locale": "en"}, context={"user": "Ana"})


async def test_a_job_is_started_once_and_read(client: AsyncCarillon, house: House) -> None:
    app_id, id = await house.app_with_template(), str(uuid.uuid4())
    now = EPOCH + timedelta(microseconds=house.clock.now_ns() // 1_000)
    job = PushJob(
        service="gcm", template="like", starts_at=now + timedelta(hours=1), expires_at=now + timedelta(hours=2),
        metadata={"campaign": "x"}, id=id,
    )  # fmt: skip
    made = await client.jobs.create(app_id, job, idempotency_key=id)
    assert (made.id, made.app_id, made.service, made.template_name) == (id, app_id, "gcm", "like")
    assert (made.starts_at, made.expires_at, made.completed_at) == (job.starts_at, job.expires_at, None)
    assert (made.metadata, made.status, made.created_at) == ({"campaign": "x"}, "", now)
    assert await client.jobs.create(app_id, job, idempotency_key=id) == made
    assert await client.jobs.get(app_id, id) == made


async def test_jobs_are_listed_over_all_pages(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    ids = []
    for _ in range(5):
        ids.append((await client.jobs.create(app_id, JOB)).id)
        house.clock.advance(1)
    both = (await client.jobs.create(app_id, PushJob(service="apns", template=["like", "like"]))).id
    newest_first = [both, *reversed(ids)]
    assert [job.id async for job in client.jobs.list(app_id, page_size=2)] == newest_first
    assert [job.id async for job in client.jobs.list_all(app_id=app_id, page_size=2)] == newest_first
    assert [job.id async for job in client.jobs.list(app_id, template=["like", "like"])] == [both]
    assert [job.id async for job in client.jobs.list(app_id, template="like")] == newest_first[1:]


async def test_a_job_is_paused_resumed_and_stopped(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    id = (await client.jobs.create(app_id, JOB)).id
    assert (await client.jobs.pause(app_id, id)).status == "paused"
    with pytest.raises(Conflict, match="cannot pause paused job"):
        await client.jobs.pause(app_id, id)
    assert (await client.jobs.resume(app_id, id)).status == ""
    assert (await client.jobs.stop(app_id, id)).status == "stopped"
    with pytest.raises(Conflict):
        await client.jobs.resume(app_id, id)


def now(house: House) -> datetime:
    return EPOCH + timedelta(microseconds=house.clock.now_ns() // 1_000)


async def test_a_preview_tells_who_would_get_what_and_makes_no_job(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    told = await client.jobs.preview(app_id, JOB)
    assert told.topic == "push-game_apns-massive"
    assert told.audience is not None
    assert (told.audience.exact, told.audience.devices, told.audience.estimated_users) == (True, 10, 10)
    assert told.audience.zones == (ZoneCount(tz="+0000", devices=10),)
    assert told.audience.locales == (LocaleCount(locale="en", devices=10),)
    [sample] = told.samples
    assert sample.record is not None
    assert (sample.template_name, sample.record["Payload"]["aps"]) == ("like", {"alert": "Ana likes it"})
    assert 0 < sample.bytes == told.largest_record_bytes < told.max_record_bytes
    assert (told.file_bytes, told.zones, told.warnings) == (None, (), ())
    nobody = await client.jobs.preview(app_id, replace(JOB, filters={"locale": "xx"}))
    assert [warning.code for warning in nobody.warnings] == ["nobody"]
    with pytest.raises(Invalid) as caught:
        await client.jobs.preview(app_id, replace(JOB, template="none"))
    assert caught.value.field == "template"
    assert [each async for each in client.jobs.list(app_id)] == []


async def test_a_preview_tells_the_zones_of_a_localized_job(client: AsyncCarillon, house: House) -> None:
    app_id, starts_at = await house.app_with_template(), now(house) + timedelta(hours=20)
    told = await client.jobs.preview(app_id, replace(JOB, localized=True, starts_at=starts_at))
    assert [(each.zone, each.devices, each.starts_at) for each in told.zones] == [("+0000", 10, starts_at)]


async def test_a_job_over_a_file_holds_users_out(client: AsyncCarillon, house: House) -> None:
    app_id, path = await house.app_with_template(), await house.file("jobs/users.csv", b"id\nu1\nu2\nu1\nx\n")
    job = PushJob(service="apns", template="like", csv_path=path, control_group=0.5)
    told = await client.jobs.preview(app_id, job)
    assert told.audience is not None
    assert (told.audience.exact, told.audience.devices, told.audience.unknown, told.audience.repeated) == (
        True,
        2,
        1,
        1,
    )
    assert (told.audience.held_out_users, told.file_bytes) == (1, 14)
    made = await client.jobs.create(app_id, job)
    assert (made.csv_path, made.control_group, made.localized, made.zones) == (path, 0.5, False, ())
    shown = await client.jobs.get(app_id, made.id)
    assert (shown.csv_path, shown.control_group_csv_path, shown.unknown, shown.rate) == (path, "", 0, 0.0)
    assert (shown.estimated_end, shown.group_id) == (None, made.group_id)
    with pytest.raises(Invalid) as caught:
        await client.jobs.create(app_id, replace(job, csv_path=f"{path}.none"))
    assert caught.value.field == "csvPath"


async def test_a_localized_job_is_started_once_for_all_zones(client: AsyncCarillon, house: House) -> None:
    app_id, starts_at, id = await house.app_with_template(), now(house) + timedelta(hours=20), str(uuid.uuid4())
    job = replace(JOB, localized=True, starts_at=starts_at, past_time_strategy="skip", id=id)
    made = await client.jobs.create(app_id, job, idempotency_key=id)
    assert await client.jobs.create(app_id, job, idempotency_key=id) == made
    assert (made.localized, made.past_time_strategy, made.group_id) == (True, "skip", id)
    assert (made.id, made.zone) == (made.zones[-1].job_id, "rest")
    assert {each.zone: each.starts_at for each in made.zones}["-0330"] == starts_at + timedelta(hours=3, minutes=30)
    listed = {each.id: each async for each in client.jobs.list(app_id, page_size=7)}
    assert {(each.job_id, each.zone) for each in made.zones} == {(each.id, each.zone) for each in listed.values()}
    with pytest.raises(Invalid) as caught:
        await client.jobs.create(app_id, replace(job, starts_at=None))
    assert caught.value.field == "localized"


async def test_what_happened_to_a_job_is_told_by_stage(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    id = (await client.jobs.create(app_id, JOB)).id
    event = Event(stage="Split CSV", state=EventState.FAIL, message="line 7", at=house.clock.now_ns())
    assert await house.store.jobs.end_plan(id, end=0, events=[event])
    [stage] = (await client.jobs.get(app_id, id)).stages
    assert stage.name == "Split CSV"
    assert [(each.message, each.state, each.created_at) for each in stage.events] == [("line 7", "fail", now(house))]
    [listed] = [each async for each in client.jobs.list(app_id)]
    assert listed.stages == ()


async def test_a_job_is_waited_for_until_it_has_ended(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    job = await client.jobs.create(app_id, JOB)
    with pytest.raises(TimeoutError, match=rf"^job {job.id} has not ended after 0\.3 s: it is running$"):
        await client.jobs.wait(job, timeout=0.3)
    waiting = asyncio.create_task(client.jobs.wait(job, timeout=50))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await client.jobs.stop(app_id, job.id)
    assert (await waiting).state == "stopped"
    with pytest.raises(NotFound):
        await client.jobs.wait(replace(job, id=str(uuid.uuid4())), timeout=50)


async def test_mistakes_are_named(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    with pytest.raises(Invalid):
        await client.jobs.create(app_id, PushJob(service="apns", template="none"))
    with pytest.raises(Invalid) as caught:
        await client.jobs.create(app_id, PushJob(service="apns", template="like", expires_at=EPOCH + timedelta(1)))
    assert caught.value.field == "expiresAt"
    with pytest.raises(NotFound):
        await client.jobs.get(app_id, str(uuid.uuid4()))
