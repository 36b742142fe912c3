"""What is told of a job beside itself: its batches, its rate, samples of its records, and trials of templates."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from shared.audience.rules.audiences import KeyRange, PushTable
from shared.jobs import watch
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import Job
from shared.jobs.watch import JobWatch
from tests.services.api.client import Reply
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BATCHES = 7


async def job_with_batches(house: House, count: int = BATCHES) -> tuple[str, Job]:
    app = await house.app_with_template()
    far = house.clock.now_ns() + 10**15
    body = {"service": "apns", "filters": {}, "context": {"user": "Bo"}, "metadata": {}, "startsAt": far}
    made = await house.admin.post(f"/apps/{app}/jobs?template=like", body)
    job = await house.store.jobs.view(made.json["id"])
    assert job is not None
    await house.store.jobs.begin_plan(job.key, source=PushTable(highest=count), templates=())
    batches = [Batch(job_id=job.key, ordinal=n, range=KeyRange(n, n + 1), size=100) for n in range(count)]
    assert await house.store.batches.add_page(batches)
    assert await house.store.batches.add_end(job.key, count)
    return f"/apps/{app}/jobs/{job.id}", job


async def settle(house: House, job: Job, ordinal: int, at: datetime, **counts: Any) -> None:
    """As a worker settles it, but at a moment of the test's choice."""
    receipt = {"sent": 0, "failed": 0, "skipped": 0, "held_out": 0, "unknown": 0} | counts
    reasons = [["no-template", receipt["failed"]]] if receipt["failed"] else []
    fields = {
        "status": "failed" if receipt["failed"] else "sent", "settled": True, "changed_at": at, "taken_at": at,
        "receipt": receipt | {"reasons": reasons, "locales": []},
        "attempts": 1,
    }  # fmt: skip
    done = await house.store._database["batches"].update_one({"job_id": job.key, "ordinal": ordinal}, {"$set": fields})
    assert done.matched_count == 1


def following(reply: Reply) -> str:
    return reply.headers.get("link", "").partition("<")[2].partition(">")[0]


async def test_batches_are_listed_in_their_order_by_page_and_state(house: House) -> None:
    path, job = await job_with_batches(house)
    await settle(house, job, 2, NOON, sent=90, failed=10)
    await settle(house, job, 4, NOON, sent=100)
    seen, page = [], f"{path}/batches?limit=3"
    while page:
        reply = await house.admin.get(page)
        seen += [each["ordinal"] for each in reply.json]
        page = following(reply)
    assert seen == list(range(BATCHES))
    [failed] = (await house.admin.get(f"{path}/batches?state=failed")).json
    assert failed == {
        "ordinal": 2, "state": "failed", "zone": "", "planned": 100, "sent": 90, "failed": 10, "skipped": 0,
        "heldOut": 0, "unknown": 0, "attempts": 1, "error": "no-template", "reasons": {"no-template": 10},
        "changedAt": "2026-01-01T12:00:00Z",
    }  # fmt: skip
    assert len((await house.admin.get(f"{path}/batches?state=planned")).json) == BATCHES - 2
    assert (await house.admin.get(f"{path}/batches?state=lost")).json["field"] == "state"
    assert (await house.admin.get(path.replace(job.id, job.app_id) + "/batches")).status == 404


async def test_the_rate_of_a_running_job_is_told(house: House) -> None:
    path, job = await job_with_batches(house)
    assert (await house.admin.get(f"{path}/rate")).json == {"points": []}
    _, other = await job_with_batches(house)
    await settle(house, job, 0, NOON, sent=30)
    await settle(house, job, 1, NOON + timedelta(seconds=1), sent=50)
    await settle(house, other, 0, NOON, sent=1_000)
    told = await JobWatch(house.store, house.servers.time).read_chart(job)
    assert [point.per_second for point in told] == [30, 50]


async def test_a_look_reads_only_what_changed_since_the_last(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    _, job = await job_with_batches(house, 60)
    for ordinal in range(50):
        await settle(house, job, ordinal, NOON + timedelta(seconds=ordinal), sent=10)
    sums, read = house.store.batch_sums, []

    def counted(original: Any) -> Any:
        async def count(*asked: Any) -> Any:
            async for ordinal, counts in original(*asked):
                read.append(ordinal)
                yield ordinal, counts

        return count

    for name in ("read_changed", "read_from"):
        monkeypatch.setattr(sums, name, counted(getattr(sums, name)))
    monkeypatch.setattr(watch, "FRESH_SECONDS", 0.0)
    watching = JobWatch(house.store, house.servers.time)
    assert sum(point.per_second for point in await watching.read_chart(job)) == 500
    assert read == list(range(60))
    read.clear()
    await settle(house, job, 50, NOON + timedelta(seconds=60), sent=10)
    assert sum(point.per_second for point in await watching.read_chart(job)) == 510
    # Five seconds more, since a batch may show late; and the last one, behind which others may have come.
    assert sorted(read) == [*range(44, 51), 59]
    explained = (
        await house.store._database["batches"]
        .find({"job_id": job.key, "changed_at": {"$gte": NOON + timedelta(seconds=55)}})
        .explain()
    )
    assert explained["executionStats"]["totalKeysExamined"] <= 2


async def test_many_who_look_at_once_cause_one_look(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    _, job = await job_with_batches(house)
    await settle(house, job, 0, NOON, sent=10)
    sums, looks = house.store.batch_sums, []
    original = sums.read_from

    def count(job_id: str, ordinal: int) -> Any:
        looks.append(ordinal)
        return original(job_id, ordinal)

    monkeypatch.setattr(sums, "read_from", count)
    watching = JobWatch(house.store, house.servers.time)
    charts = await asyncio.gather(*(watching.read_chart(job) for _ in range(20)))
    assert (len(looks), {len(chart) for chart in charts}) == (1, {1})


async def test_lists_tell_how_fast_a_running_job_is(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    path, job = await job_with_batches(house)
    await settle(house, job, 0, NOON, sent=100)

    async def stand_still() -> datetime:
        return NOON

    monkeypatch.setattr(house.servers.time, "now", stand_still)
    lists = [f"/apps/{job.app_id}/jobs", f"/jobs?app={job.app_id}"]
    told = [(await house.admin.get(path)).json, *[(await house.admin.get(each)).json[0] for each in lists]]
    assert [each["rate"] for each in told] == [100.0] * 3


async def test_the_rate_of_a_closed_job_is_what_was_kept(house: House) -> None:
    path, job = await job_with_batches(house)
    await settle(house, job, 0, NOON, sent=30)
    chart = await JobWatch(house.store, house.servers.time).read_chart(job)
    await house.store.closed_jobs.keep_rate(job.key, chart)
    await house.store._database["jobs"].update_one({"_id": job.id}, {"$set": {"open": False, "status": "stopped"}})
    await house.store.batches.remove_of([job.key])
    told = (await house.admin.get(f"{path}/rate")).json
    assert told == {"points": [{"at": "2026-01-01T12:00:00Z", "perSecond": 30.0}]}


async def test_samples_are_for_operators_and_show_the_jobs_context(house: House) -> None:
    path, job = await job_with_batches(house)
    [sample] = (await house.admin.get(f"{path}/samples")).json["samples"]
    assert (sample["templateName"], sample["record"]["Payload"]["aps"]) == ("like", {"alert": "Bo likes it"})
    viewer = await house.admin.post("/tokens", {"name": "viewer", "roles": {f"app/{job.app_id}": "viewer"}})
    client = house.admin.service(viewer.json["token"])
    assert (await client.get(f"{path}/samples")).status == 403
    assert (await client.get(f"{path}/batches")).status == 200
    assert (await client.get(f"{path}/rate")).status == 200


async def test_a_template_is_tried_and_not_stored(house: House) -> None:
    app = await house.app_with_template()
    path = f"/apps/{app}/templates/render"
    tried = await house.admin.post(path, {"template": {"body": {"alert": "{{a}} {{b}}"}}, "context": {"a": 1}})
    assert (tried.status, tried.json) == (
        200,
        {"locale": "en", "body": {"alert": "1 "}, "bytes": 14, "fault": "", "field": "", "valuelessTags": ["b"]},
    )
    broken = (await house.admin.post(path, {"template": {"body": {"alert": {"title": "{{a"}}}})).json
    assert (broken["body"], broken["field"], "never closes" in broken["fault"]) == (None, "body.alert.title", True)
    named = (await house.admin.post(path, {"name": "like", "locale": "pt", "context": {"user": "Bo"}})).json
    assert (named["locale"], named["body"]) == ("en", {"alert": "Bo likes it"})
    assert (await house.admin.post(path, {"name": "none"})).status == 404
    for body in ({}, {"name": "like", "template": {"body": {"alert": "a"}}}):
        assert (await house.admin.post(path, body)).json["field"] == "template"
    assert [each["name"] for each in (await house.admin.get(f"/apps/{app}/templates")).json] == ["like"]


async def test_a_dry_run_of_a_move_tells_figures_moves_nothing_and_is_not_written_down(house: House) -> None:
    path, job = await job_with_batches(house)
    await settle(house, job, 0, NOON, sent=100)
    for move, jobs in (("stop", 1), ("pause", 1), ("resume", 0)):
        told = await house.admin.put(f"{path}/{move}?dryRun=true")
        not_reached = 100 * (BATCHES - 1) if jobs else 0
        assert (told.status, told.json) == (
            200, {"jobs": jobs, "devicesNotReached": not_reached, "unplanned": jobs},
        )  # fmt: skip
        assert (await house.admin.put(f"{path}/{move}?dryRun=1")).status == 422
    assert (await house.admin.get(path)).json["status"] == ""
    acts = (await house.admin.get(f"/audit?on={job.id}")).json
    # What nobody could read was refused, and that is written down.
    assert {(each["act"], each["outcome"]) for each in acts} <= {
        ("job.create", "done"), ("job.stop", "refused"), ("job.pause", "refused"), ("job.resume", "refused"),
    }  # fmt: skip


async def test_a_dry_run_of_a_groups_move_counts_its_jobs(house: House) -> None:
    app = await house.app_with_template()
    far = house.clock.now_ns() + 10**15
    body = {"service": "apns", "filters": {}, "startsAt": far, "localized": True, "pastTimeStrategy": "skip"}
    made = (await house.admin.post(f"/apps/{app}/jobs?template=like", body)).json
    path = f"/apps/{app}/groups/{made['jobGroupId']}"
    zones = len((await house.admin.get(path)).json["zones"])
    told = (await house.admin.put(f"{path}/stop?dryRun=true")).json
    assert told == {"jobs": zones, "devicesNotReached": 0, "unplanned": zones}
    assert (await house.admin.put(f"{path}/resume?dryRun=true")).json["jobs"] == 0
    assert {each["status"] for each in (await house.admin.get(path)).json["zones"]} == {""}
