"""Every method for localized pushes, against the real API."""

import uuid
from datetime import timedelta

import pytest

from carillon import AsyncCarillon, NotFound, PushJob
from shared.audience.rules.zones import zones
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_a_group_is_shown_paused_resumed_and_stopped(client: AsyncCarillon, house: House) -> None:
    app_id, starts_at = await house.app_with_template(), house.clock.now() + timedelta(hours=20)
    job = await client.jobs.create(
        app_id, PushJob(service="apns", template="like", localized=True, starts_at=starts_at)
    )
    group = await client.groups.get(app_id, job.group_id)
    assert (group.id, group.app_id, group.template_name) == (job.group_id, app_id, "like")
    assert (group.starts_at, group.created_at, group.total_tokens) == (starts_at, house.clock.now(), 0)
    assert [(each.zone, each.job_id, each.starts_at) for each in group.zones] == [
        (each.zone, each.job_id, each.starts_at) for each in job.zones
    ]
    assert [each.zone for each in group.zones] == list(zones())
    assert {(each.status, each.completed_at) for each in group.zones} == {("", None)}
    stopped = group.zones[0].job_id
    await client.jobs.stop(app_id, stopped)
    for move, status in ((client.groups.pause, "paused"), (client.groups.resume, ""), (client.groups.stop, "stopped")):
        for _ in range(2):
            moved = {each.job_id: each.status for each in (await move(app_id, job.group_id)).zones}
            assert moved.pop(stopped) == "stopped"
            assert set(moved.values()) == {status}


async def test_a_group_that_is_not_there_is_told(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    alone = await client.jobs.create(app_id, PushJob(service="apns", template="like"))
    for group_id in (str(uuid.uuid4()), alone.group_id):
        for call in (client.groups.get, client.groups.pause, client.groups.resume, client.groups.stop):
            with pytest.raises(NotFound) as caught:
                await call(app_id, group_id)
            assert caught.value.field == "groupId"
