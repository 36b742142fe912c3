"""Every method for push jobs, against the real API."""

import uuid
from datetime import timedelta

import pytest

from carillon.client import Carillon, Forbidden, Invalid, NotFound, PushJob
from shared.domain.instants import EPOCH
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

JOB = PushJob(service="apns", templates=["like"], filters={"locale": "en"}, context={"user": "Ana"})


async def test_a_job_is_started_once_and_read(client: Carillon, house: House) -> None:
    app_id, id = await house.app_with_template(), str(uuid.uuid4())
    now = EPOCH + timedelta(microseconds=house.clock.now_ns() // 1_000)
    job = PushJob(
        service="gcm", templates=["like"], starts_at=now + timedelta(hours=1), expires_at=now + timedelta(hours=2),
        metadata={"campaign": "x"}, id=id,
    )  # fmt: skip
    made = await client.jobs.start(app_id, job, idempotency_key=id)
    assert (made.id, made.app_id, made.service, made.template_name) == (id, app_id, "gcm", "like")
    assert (made.starts_at, made.expires_at, made.completed_at) == (job.starts_at, job.expires_at, None)
    assert (made.metadata, made.status, made.created_at) == ({"campaign": "x"}, "", now)
    assert await client.jobs.start(app_id, job, idempotency_key=id) == made
    assert await client.jobs.get(app_id, id) == made


async def test_jobs_are_listed_over_all_pages(client: Carillon, house: House) -> None:
    app_id = await house.app_with_template()
    ids = [(await client.jobs.start(app_id, JOB)).id for _ in range(5)]
    both = (await client.jobs.start(app_id, PushJob(service="apns", templates=["like", "like"]))).id
    assert sorted([job.id async for job in client.jobs.list(app_id, page_size=2)]) == sorted([*ids, both])
    assert [job.id async for job in client.jobs.list(app_id, templates=["like", "like"])] == [both]


async def test_a_job_is_paused_resumed_and_stopped(client: Carillon, house: House) -> None:
    app_id = await house.app_with_template()
    id = (await client.jobs.start(app_id, JOB)).id
    assert (await client.jobs.pause(app_id, id)).status == "paused"
    with pytest.raises(Forbidden, match="cannot pause paused job"):
        await client.jobs.pause(app_id, id)
    assert (await client.jobs.resume(app_id, id)).status == ""
    assert (await client.jobs.stop(app_id, id)).status == "stopped"
    with pytest.raises(Forbidden):
        await client.jobs.resume(app_id, id)


async def test_mistakes_are_named(client: Carillon, house: House) -> None:
    app_id = await house.app_with_template()
    with pytest.raises(Invalid):
        await client.jobs.start(app_id, PushJob(service="apns", templates=["none"]))
    with pytest.raises(Invalid) as caught:
        await client.jobs.start(app_id, PushJob(service="apns", templates=["like"], expires_at=EPOCH + timedelta(1)))
    assert caught.value.field == "expiresAt"
    with pytest.raises(NotFound):
        await client.jobs.get(app_id, str(uuid.uuid4()))
