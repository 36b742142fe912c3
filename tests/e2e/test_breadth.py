"""What jobs can be asked for besides the plain case, and what becomes of them when their audience or templates are
not as hoped for: every device ends in one of sent, failed, skipped or never begun, and the sums say which."""

import asyncio
import signal
from collections import Counter
from time import time
from typing import Any

import pytest

from services.embedded.processes import free_port
from shared.jobs.rules.batches import BatchStatus
from shared.jobs.rules.jobs import Job, JobStatus, split_key
from shared.push.rules import choices
from shared.push.rules.records import APNS, GCM
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, is_completed
from tests.push.rules import careful
from tests.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

SECOND = 1_000_000_000


def counts(job: Job) -> tuple[int, int, int, int]:
    """Planned, sent, failed and skipped devices; all batches of the job must be settled."""
    assert job.totals is not None
    assert job.totals.batches == job.totals.settled == job.plan.end
    return job.totals.planned, job.totals.sent, job.totals.failed, job.totals.skipped


def devices_of(records: list[Any]) -> Counter[int]:
    """How many records each device has, by the number in its user's id."""
    return Counter(int(record["metadata"]["userId"][1:]) for record in records)


def numbers(*, upto: int, without: int = 0) -> Counter[int]:
    """One record for every device up to a number, but none for the multiples of `without`."""
    return Counter(n for n in range(1, upto + 1) if not without or n % without)


async def planned_but_held(house: House, **environment: str) -> str:
    """A job of which all batches are cut and none is sent."""
    job_id = await house.post()
    assert await house.jobs.pause(job_id)
    await house.start("worker", **environment)

    async def is_planned() -> bool:
        standing = await house.servers.store.jobs.get_standing(job_id)
        return standing is not None and standing.end is not None

    await until(is_planned, "the plan")
    return job_id


async def test_gcm_records(house: House) -> None:
    await house.devices(1_500, GCM)
    await house.start("worker")
    expires_at = (int(time()) + 3_600) * SECOND
    context, metadata = {"who": 'A"na\n{{who}}'}, {"campaign": "x<y>&"}
    job_id = await house.post(service=GCM, context=context, metadata=metadata, expires_at=expires_at)
    assert counts(await house.closed(job_id)) == (1_500, 1_500, 0, 0)
    records = await house.records(1_500, topic=f"push-{house.app}_gcm-massive")
    assert devices_of(records) == numbers(upto=1_500)
    assert len({record["metadata"].pop("muid") for record in records}) == 1_500
    for record in records:
        user = record["metadata"].pop("userId")
        assert record.pop("to") == f"{int(user[1:]):064x}"
        assert abs(record["metadata"].pop("pushTime") - time()) < 600
        # Seconds that remain; the end itself stands beside it, in the unit that the receiver compares it in.
        assert 3_000 < record.pop("time_to_live") <= 3_600
        assert record == {
            "data": {"alert": context["who"], "m": metadata, "templateName": "like"},
            "push_expiry": expires_at // 1_000_000,
            "dry_run": False,
            "message_id": "",
            "metadata": {"jobId": split_key(job_id)[0], "pushType": "massive", "templateName": "like"},
        }


@pytest.mark.parametrize(
    ("service", "token", "length"),
    [(APNS, "DeviceToken", 5 + 64), pytest.param(GCM, "to", 5 + 152, marks=pytest.mark.slow)],
)
async def test_a_dry_run_spares_the_devices(house: House, service: str, token: str, length: int) -> None:
    await house.devices(2_500, service)
    await house.start("worker")
    job_id = await house.post(service=service, metadata={"dryRun": True})
    assert counts(await house.closed(job_id)) == (2_500, 2_500, 0, 0)
    records = await house.records(2_500, topic=f"push-{house.app}_{service}-massive")
    assert devices_of(records) == numbers(upto=2_500)
    tokens = {record[token] for record in records}
    assert len(tokens) == 2_500
    assert all(each.startswith("FAKE-") and len(each) == length for each in tokens)
    assert all(record["metadata"]["dryRun"] is True for record in records)
    assert all(record.get("dry_run", True) is True for record in records)


async def test_several_templates_share_the_devices(house: House) -> None:
    await house.devices(6_000)
    for name in ("a", "b"):
        await house.template(name, "en", {"alert": f"{name} in English"})
    # A batch that is tried again by another worker must choose the same.
    doomed = await house.start("worker", fault="send.in_transaction@3=kill")
    job_id = await house.post(template_names=("a", "b"))
    await doomed.gone()
    for service in ("worker", "scheduler"):
        await house.start(service)
    await house.exactly_once(job_id, 6_000)
    records = await house.records(6_000)
    key = choices.choice_key(job_id, "template")
    for record in records:
        name = careful.pick(("a", "b"), key, (0, record["metadata"]["userId"], None, None))
        assert record["metadata"]["templateName"] == record["Payload"]["templateName"] == name
        assert record["Payload"]["aps"] == {"alert": f"{name} in English"}
    split = Counter(record["Payload"]["templateName"] for record in records)
    assert split.keys() == {"a", "b"}
    assert min(split.values()) > 2_700


async def test_what_is_not_sent_when_a_job_expires_is_dropped(house: House) -> None:
    await house.devices(40_000)
    worker = await house.start("worker", fault="send.after_take@9=stop")
    expires_at = house.servers.clock.now_ns() + 10 * SECOND
    job_id = await house.post(expires_at=expires_at)
    await worker.reached("send.after_take")
    await until(lambda: house.servers.clock.now_ns() > expires_at, "the end of its time")
    worker.send(signal.SIGCONT)
    job = await house.closed(job_id)
    planned, sent, failed, skipped = counts(job)
    assert job.status is JobStatus.COMPLETED
    assert (planned, failed, skipped) == (40_000, 0, 0)
    assert 0 < sent < 40_000
    assert job.failure == f"{40_000 - sent:,} of 40,000 recipients got nothing by expiresAt"
    per_device = devices_of(await house.records(sent))
    assert per_device.total() == sent
    assert set(per_device.values()) == {1}


@pytest.mark.parametrize(
    ("every", "status"), [(3, BatchStatus.FAILED), pytest.param(50, BatchStatus.SENT, marks=pytest.mark.slow)]
)
async def test_a_template_that_fails_for_one_locale(house: House, every: int, status: BatchStatus) -> None:
    """The others are sent all the same; over 5 % of failures show on the batch."""
    await house.devices(3_000)
    await house.change_devices(f"UPDATE {{table}} SET locale = CASE WHEN seq_id % {every} = 0 THEN 'xx' ELSE 'en' END")
    await house.template("like", "xx", {"alert": {"title": "{{who}}", "body": ["{{thing}}"]}})
    await house.start("worker")
    job_id = await house.post(context={"who": "Ana", "thing": {"an": "object"}})
    job = await house.closed(job_id)
    refused = 3_000 // every
    assert job.status is JobStatus.COMPLETED
    assert counts(job) == (3_000, 3_000 - refused, refused, 0)
    assert (job.reasons, job.locales) == ({"bad-context": refused}, {"en": 3_000 - refused})
    batches = [await house.servers.store.batches.get(job_id, ordinal) for ordinal in range(3)]
    assert [batch and batch.status for batch in batches] == [status] * 3
    assert devices_of(await house.records(3_000 - refused)) == numbers(upto=3_000, without=every)


async def test_devices_without_a_token_are_skipped(house: House) -> None:
    await house.devices(2_000)
    await house.change_devices("UPDATE {table} SET token = CASE WHEN seq_id % 2 = 0 THEN '' END WHERE seq_id % 5 = 0")
    await house.start("worker")
    job = await house.closed(await house.post())
    assert (job.status, counts(job)) == (JobStatus.COMPLETED, (2_000, 1_600, 0, 400))
    assert job.reasons == {"no-token": 400}
    assert devices_of(await house.records(1_600)) == numbers(upto=2_000, without=5)


async def test_devices_that_are_deleted_after_planning_are_gone(house: House) -> None:
    await house.devices(3_000)
    job_id = await planned_but_held(house)
    await house.change_devices("DELETE FROM {table} WHERE seq_id % 4 = 0 OR seq_id > 2000")
    assert await house.jobs.resume(job_id)
    job = await house.closed(job_id)
    assert (job.status, counts(job)) == (JobStatus.COMPLETED, (3_000, 1_500, 0, 1_500))
    assert job.reasons == {"gone": 1_500}
    assert devices_of(await house.records(1_500)) == numbers(upto=2_000, without=4)


@pytest.mark.parametrize(
    ("devices", "filters"),
    [
        pytest.param(0, {}, marks=pytest.mark.slow),
        pytest.param(500, {"locale": "zz"}, marks=pytest.mark.slow),
        (500, {"NOTregion": "BR"}),
    ],
)
async def test_a_job_for_nobody_completes_with_zeros(house: House, devices: int, filters: dict[str, str]) -> None:
    await house.devices(devices)
    await house.start("worker")
    job = await house.closed(await house.post(filters=filters))
    assert (job.status, job.failure, counts(job)) == (JobStatus.COMPLETED, "", (0, 0, 0, 0))
    assert job.plan.end == 0
    assert job.completed_at > 0
    assert await house.records(0) == []


async def test_a_stopped_job_sends_nothing_more(house: House) -> None:
    await house.devices(40_000)
    worker = await house.start("worker", fault="send.after_take@6=stop")
    job_id = await house.post()
    await worker.reached("send.after_take")
    assert await house.jobs.stop(job_id)
    worker.send(signal.SIGCONT)
    job = await house.closed(job_id)
    _, sent, failed, skipped = counts(job)
    assert (job.status, job.failure, failed, skipped) == (JobStatus.STOPPED, "", 0, 0)
    assert 0 < sent < 40_000
    # Some rounds of every lane later there is still no record more.
    await asyncio.sleep(1)
    per_device = devices_of(await house.records(sent))
    assert per_device.total() == sent
    assert set(per_device.values()) == {1}
    assert await house.servers.store.jobs.get(job_id) == job


async def test_a_job_whose_table_is_dropped_before_planning_is_stopped(house: House) -> None:
    await house.devices(1_000)
    job_id = await house.post()
    await house.change_devices("DROP TABLE {table}")
    await house.start("worker", CARILLON_WORKER_GRACE_SECONDS="0")
    job = await house.closed(job_id)
    assert (job.status, counts(job)) == (JobStatus.STOPPED, (0, 0, 0, 0))
    assert f"{house.app}_apns" in job.failure


async def test_a_job_whose_table_is_dropped_after_planning_fails_everybody(house: House) -> None:
    await house.devices(3_000)
    job_id = await planned_but_held(house, CARILLON_WORKER_GRACE_SECONDS="0")
    await house.change_devices("DROP TABLE {table}")
    assert await house.jobs.resume(job_id)
    job = await house.closed(job_id)
    assert (job.status, counts(job)) == (JobStatus.COMPLETED, (3_000, 0, 3_000, 0))
    assert job.reasons == {"unreadable": 3_000}
    assert await house.records(0) == []


async def test_a_table_that_is_away_for_a_moment_costs_nothing(house: House) -> None:
    """Somebody swaps it for a new one, in two statements."""
    await house.devices(30_000)
    slow = ",".join(f"send.after_take@{n}=delay:0.15" for n in range(1, 60))
    await house.start("worker", fault=slow)
    await house.start("scheduler")
    job_id = await house.post()

    async def has_begun() -> bool:
        totals = (await house.servers.store.batch_sums.totals([job_id])).get(job_id)
        return totals is not None and totals.sent > 5_000

    await until(has_begun, "some batches")
    await house.change_devices("ALTER TABLE {table} RENAME TO away")
    await asyncio.sleep(0.4)
    await house.change_devices(f'ALTER TABLE away RENAME TO "{house.app}_apns" -- {{table}}')
    await house.exactly_once(job_id, 30_000)


async def test_a_service_with_a_token_for_one_app(house: House) -> None:
    await house.devices(2_000)
    port = free_port()
    await house.start("api", CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN="admin@example.com")
    await house.start("worker")
    admin = Customer(port)
    app_id = await an_app(house, admin)
    other = {"name": f"{house.app}x", "bundleId": f"com.example.{house.app}x"}
    status, other_app = await admin.call("POST", "/apps", other)
    assert status == 201, other_app
    status, token = await admin.call("POST", "/tokens", {"name": "billing", "allowedApps": [app_id]})
    assert status == 201, token

    # The e-mail that every call of this client names must not help: the token alone decides.
    shown = {"authorization": f"Bearer {token['token']}"}
    status, job = await admin.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns"}, **shown)
    assert status == 201, job
    assert "admin@example.com" not in job["createdBy"]
    path = f"/apps/{app_id}/jobs/{job['id']}"
    await until(lambda: is_completed(admin, path), "the job to complete")
    assert (await admin.call("GET", path, **shown))[1]["sent"] == 2_000
    elsewhere = f"/apps/{other_app['id']}/jobs?template=welcome"
    assert (await admin.call("POST", elsewhere, {"service": "apns"}, **shown))[0] == 403
    assert (await admin.call("GET", "/tokens", **shown))[0] == 403

    assert (await admin.call("DELETE", f"/tokens/{token['id']}"))[0] == 204
    assert (await admin.call("GET", path, **shown))[0] == 401
