"""What operators ask for, against the real API."""

from datetime import UTC, datetime, timedelta

import pytest

from carillon import (
    AsyncCarillon,
    BulkFilter,
    Conflict,
    Forbidden,
    NotFound,
    PushJob,
    RabbitCallback,
    Template,
    Token,
    Unauthorized,
)
from tests.client.both import connect
from tests.client.made import NAMESPACE, ahead, fresh_key, schedule
from tests.client.test_dead_letters import buried
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_an_overview_tells_whether_all_is_well(client: AsyncCarillon) -> None:
    seen = await client.overview()
    assert (seen.verdict, seen.partial) == ("ailing", False)
    assert "RoleMissing" in {sign.name for sign in seen.signs}
    assert all(sign.severity and sign.sentence and sign.remedy for sign in seen.signs)


async def test_what_runs_is_listed(client: AsyncCarillon) -> None:
    assert [queue async for queue in client.queues.list()] == list((await client.overview()).queues) != []
    assert isinstance(await client.processes(), tuple)
    assert isinstance(await client.minutes(5), tuple)
    assert "api.first_admin" in {setting.name for setting in await client.settings()}


async def test_a_service_sees_no_settings(client: AsyncCarillon, port: int) -> None:
    issued = await client.tokens.create(Token(name="billing"))
    async with connect(f"http://127.0.0.1:{port}", token=issued.token) as service:
        assert (await service.overview()).partial
        for call in (service.settings, service.processes):
            with pytest.raises(Forbidden):
                await call()


async def test_jobs_of_all_apps_come_newest_first(client: AsyncCarillon, house: House) -> None:
    job, ids = PushJob(service="apns", template="like"), []
    for _ in range(3):
        ids.append((await client.jobs.create(await house.app_with_template(), job)).id)
        house.clock.advance(seconds=1)
    listed = [each async for each in client.jobs.list_all(template="like", limit=3, page_size=2)]
    assert [each.id for each in listed] == ids[::-1]
    assert {each.state for each in listed} == {"running"}
    assert all(each.app is not None and each.app.id == each.app_id for each in listed)
    one = [each.id async for each in client.jobs.list_all(app_id=listed[0].app_id, status="running")]
    assert one == [listed[0].id]


async def test_a_secret_is_good_until_its_overlap_ends(client: AsyncCarillon, port: int) -> None:
    end = datetime.now(UTC).replace(microsecond=0) + timedelta(days=365)
    first = await client.tokens.create(Token(name="billing", namespace=f"token:{fresh_key()}", expires_at=end))
    second = await client.tokens.rotate(first.id, overlap_seconds=3_600)
    assert (second.id, second.expires_at, second.namespace) == (first.id, end, first.namespace)
    assert second.previous_until is not None
    for secret in (first.token, second.token):
        async with connect(f"http://127.0.0.1:{port}", token=secret) as service:
            assert (await service.whoami()).namespace == first.namespace
    third = await client.tokens.rotate(first.id, overlap_seconds=0)
    async with connect(f"http://127.0.0.1:{port}", token=second.token) as service:
        with pytest.raises(Unauthorized):
            await service.whoami()
    async with connect(f"http://127.0.0.1:{port}", token=third.token) as service:
        assert (await service.whoami()).name == "billing"


async def test_what_fires_next_is_told(client: AsyncCarillon) -> None:
    key, (first, _) = fresh_key(), ahead(1, 2)
    await client.schedules.create(schedule(key, *ahead(1, 2)))
    told = await client.schedules.find_due(within_seconds=5_400)
    assert [each.at for each in told.instants if each.key == key] == [first]
    assert told.as_of < told.until <= told.as_of + timedelta(seconds=5_400)


async def test_a_dead_letter_is_shown_with_what_a_retry_would_do(client: AsyncCarillon, house: House) -> None:
    key = fresh_key()
    await client.schedules.create(schedule(key))
    [id] = await buried(house, key, 1)
    letter = await client.dead_letters.get(id)
    assert (letter.namespace, letter.key, letter.error) == (NAMESPACE, key, "404 Not Found")
    assert letter.callback == RabbitCallback(queue="invitations", payload={"id": "42"})
    counted = await client.dead_letters.count_errors(key=key)
    assert [(each.error, each.count) for each in counted] == [("404 Not Found", 1)]
    await client.schedules.delete(key)
    assert (await client.dead_letters.get(id)).callback is None
    with pytest.raises(Conflict):
        await client.dead_letters.retry(id)


async def test_the_inside_of_a_job_is_shown(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    id = (await client.jobs.create(app_id, PushJob(service="apns", template="like", context={"user": "Ana"}))).id
    assert [each async for each in client.jobs.batches(app_id, id, state="planned")] == []
    assert (await client.jobs.read_rate(app_id, id)).points == ()
    told = await client.jobs.read_samples(app_id, id)
    assert told.samples[0].record is not None
    assert 0 < told.samples[0].bytes < told.max_record_bytes


async def test_a_move_is_tried_before_it_is_made(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    job = await client.jobs.create(app_id, PushJob(service="apns", template="like"))
    told = await client.jobs.dry_run(app_id, job.id, "stop")
    assert (told.jobs, told.devices_not_reached, told.unplanned) == (1, 0, 1)
    assert (await client.jobs.dry_run(app_id, job.id, "resume")).jobs == 0
    assert (await client.jobs.get(app_id, job.id)).state == "running"
    zones = PushJob(
        service="apns", template="like", localized=True, starts_at=house.clock.now() + timedelta(hours=20)
    )  # fmt: skip
    localized = await client.jobs.create(app_id, zones)
    assert (await client.groups.dry_run(app_id, localized.group_id, "stop")).jobs == len(localized.zones)


async def test_a_template_is_tried_before_it_is_stored(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    wanted = Template(name="new", locale="pt", body={"alert": "{{user}} {{thing}}"}, defaults={"user": "Ana"})
    told = await client.templates.render(app_id, wanted)
    assert (told.locale, told.fault, told.valueless_tags) == ("pt", "", ("thing",))
    assert told.body is not None
    stored = await client.templates.render(app_id, "like", context={"user": "Bo"})
    assert stored.body == {"alert": "Bo likes it"}
    with pytest.raises(NotFound):
        await client.templates.render(app_id, "none")


async def test_a_bulk_action_is_tried_made_and_cancelled(client: AsyncCarillon) -> None:
    prefix = fresh_key()
    for n in range(3):
        await client.schedules.create(schedule(f"{prefix}-{n}"))
    mine = BulkFilter(prefix=prefix)
    figures = await client.bulk_actions.dry_run("schedule.pause", mine)
    assert (figures.matched, figures.devices_not_reached, figures.filter.prefix) == (3, None, prefix)
    with pytest.raises(Conflict, match="more than 2"):
        await client.bulk_actions.create("schedule.pause", mine, reason="a storm", at_most=2)
    key = fresh_key()
    made = await client.bulk_actions.create("schedule.pause", mine, reason="a storm", idempotency_key=key)
    assert (made.state, made.matched, made.done, made.reason) == ("waiting", 3, 0, "a storm")
    again = await client.bulk_actions.create("schedule.pause", mine, reason="a storm", idempotency_key=key)
    assert again.id == made.id
    assert made.id in [each.id async for each in client.bulk_actions.list(limit=10)]
    assert (await client.bulk_actions.cancel(made.id)).state == "cancelled"
    assert (await client.bulk_actions.get(made.id)).state == "cancelled"
    with pytest.raises(Conflict):
        await client.bulk_actions.cancel(made.id)
    records = [each async for each in client.audit.list(act="bulk-action.create", limit=3)]
    assert ("a storm", 3) in {(record.reason, record.count) for record in records}
