"""`/jobs`: the jobs of all apps that a caller may see."""

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from shared.core.instants import format_instant, from_ns
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.jobs import JobStatus
from tests.jobs.made import a_job
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def some_jobs(house: House, *app_ids: str, count: int = 6) -> list[str]:
    """The ids of jobs of these apps in turn, the newest first."""
    jobs = [
        a_job(
            app_id=app_ids[n % len(app_ids)],
            created_at=10**18 + n,
            context={"who": "Ana"},
            status=JobStatus.PAUSED if n % 2 else JobStatus.RUNNING,
        )
        for n in range(count)
    ]
    for job in jobs:
        await house.store.jobs.add(job)
    return [job.id for job in reversed(jobs)]


async def follow(client: Client, path: str) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    while path:
        answer = await client.get(path)
        assert answer.status == 200, answer.body
        shown += answer.json
        path = answer.headers.get("link", "<>").partition("<")[2].partition(">")[0]
    return shown


async def test_jobs_of_several_apps_are_one_list_in_pages(house: House) -> None:
    one, two, other = [await house.app() for _ in range(3)]
    ids = await some_jobs(house, one, two, one)
    await some_jobs(house, other)
    service = await house.service(one, two)
    for limit in (1, 2, 3, 100):
        assert [job["id"] for job in await follow(service, f"/jobs?limit={limit}")] == ids
    shown = await follow(service, f"/jobs?app={two}&status=running")
    assert [job["id"] for job in shown] == [ids[1]]
    assert (shown[0]["state"], shown[0]["app"]["id"]) == ("running", two)
    everything = [job["id"] for job in await follow(house.admin, "/jobs")]
    assert [job_id for job_id in everything if job_id in ids] == ids
    assert len(everything) >= 12


async def test_a_localized_push_is_one_job_on_one_page_of_a_grouped_list(house: House) -> None:
    app_id, client = await house.app(), house.admin
    zones = [f"+{hour:02}{minute}" for hour in range(15) for minute in ("00", "30", "45")]
    at = [10**18, 10**18, 10**18 + 1]  # two of one instant
    groups = [str(uuid.uuid4()) for _ in at]
    done = Totals(batches=1, settled=1, planned=10, sent=8, failed=2)
    for group_id, created_at in zip(groups, at, strict=True):
        for number, zone in enumerate(zones):
            ended = {"status": JobStatus.COMPLETED, "totals": done, "completed_at": 10**18 + number, "open": False}
            job = a_job(app_id=app_id, zone=zone, group_id=group_id, created_at=created_at, localized=True)
            waits = {"status": JobStatus.SCHEDULED, "starts_at": 10**18 + 5}
            await house.store.jobs.add(replace(job, **(waits if number % 3 else ended)))
    alone = await some_jobs(house, app_id, count=3)
    expected, shown = {*groups, *alone}, []
    for limit in (1, 2, 3, 20):
        for query in ("", "&status=scheduled", "&status=completed"):
            shown = await follow(client, f"/jobs?app={app_id}&grouped=true&limit={limit}{query}")
            found = [job["id"] for job in shown]
            assert len(found) == len({*found}) and {*found} == (expected if not query else {*groups}), (limit, query)
    push = next(job for job in shown if job["id"] == groups[0])
    assert (push["totalTokens"], push["sent"], push["failed"], push["totalBatches"]) == (150, 120, 30, 15)
    assert (push["state"], push["states"], push["zone"]) == ("running", {"completed": 15, "scheduled": 30}, "")
    assert (push["jobGroupId"], push["completedAt"]) == (groups[0], 0)
    assert len((await client.get(f"/jobs?app={app_id}")).json) == 3 * 45 + 3
    assert (await client.get("/jobs?grouped=perhaps")).json["field"] == "grouped"


async def test_a_job_says_how_it_ended(house: House) -> None:
    app_id = await house.app()
    service = await house.service(app_id)
    ends = {
        "stopped": a_job(app_id=app_id, status=JobStatus.STOPPED),
        "failed": a_job(app_id=app_id, status=JobStatus.STOPPED, failure="no such file"),
        "completed": a_job(app_id=app_id, status=JobStatus.COMPLETED, completed_at=1),
        "expired": a_job(app_id=app_id, status=JobStatus.COMPLETED, completed_at=1, failure="3 of 10 got nothing"),
    }
    for job in ends.values():
        await house.store.jobs.add(job)
    assert {job["state"]: job["id"] for job in await follow(service, "/jobs")} == {
        state: job.id for state, job in ends.items()
    }
    for state, job in ends.items():
        assert [each["id"] for each in await follow(service, f"/jobs?status={state}")] == [job.id]
        shown = (await service.get(f"/apps/{app_id}/jobs/{job.id}")).json
        assert (shown["state"], shown["failure"]) == (state, job.failure)
        # What Marathon's clients read.
        assert shown["status"] == ("stopped" if job.status is JobStatus.STOPPED else "")


async def test_a_viewer_sees_jobs_without_personal_data_and_of_no_other_app(house: House) -> None:
    mine, other = await house.app(), await house.app()
    [job_id] = await some_jobs(house, mine, count=1)
    await house.store.jobs._jobs.update_one({"_id": job_id}, {"$set": {"csv_path": "carillon/private.csv"}})
    made = await house.admin.post("/tokens", {"name": "viewer", "roles": {f"app/{mine}": "viewer"}})
    viewer = house.admin.service(made.json["token"])
    [shown] = await follow(viewer, "/jobs")
    assert (shown["id"], shown["redacted"], shown["csvPath"]) == (job_id, True, "")
    [whole] = await follow(house.admin, f"/jobs?app={mine}")
    assert (whole["redacted"], whole["csvPath"]) == (False, "carillon/private.csv")
    refused = await viewer.get(f"/jobs?app={other}")
    assert (refused.status, refused.json["field"]) == (403, "app")


async def test_who_may_see_too_many_apps_names_one(house: House) -> None:
    many = [await house.app() for _ in range(21)]
    service = await house.service(*many)
    refused = await service.get("/jobs")
    assert (refused.status, refused.json["field"]) == (422, "app")
    assert (await service.get(f"/jobs?app={many[0]}")).json == []
    assert (await (await house.service()).get("/jobs")).json == []


async def test_jobs_of_one_maker_and_of_a_time_are_found_page_by_page(house: House) -> None:
    app_id = await house.app_with_template()
    service = await house.service(app_id, name="billing")
    ids: list[str] = []
    for n in range(6):
        house.clock.advance(60)
        client = service if n % 2 else house.admin
        made = await client.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
        ids.insert(0, made.json["id"])
    jobs = await follow(house.admin, f"/jobs?app={app_id}")
    assert [job["id"] for job in jobs] == ids
    third, fifth = [format_instant(from_ns(jobs[place]["createdAt"])) for place in (3, 1)]
    for limit in (1, 100):
        for query, expected in (
            ("by=billing", ids[::2]),
            (f"by={ADMIN}", ids[1::2]),
            (f"by={ADMIN.title()}", ids[1::2]),
            ("by=nobody", []),
            (f"since={third}", ids[:4]),
            (f"until={third}", ids[4:]),
            (f"since={third}&until={fifth}", ids[2:4]),
            (f"since={third}&until={fifth}&by=billing", ids[2:3]),
        ):
            found = await follow(house.admin, f"/jobs?app={app_id}&limit={limit}&{query}")
            assert [job["id"] for job in found] == expected, query


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=gone", "status"),
        ("app=x", "app"),
        ("cursor=x", "cursor"),
        ("since=yesterday", "since"),
        ("until=2030-01-01", "until"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused_by_its_field(house: House, query: str, field: str) -> None:
    answer = await house.admin.get(f"/jobs?{query}")
    assert (answer.status, answer.json["field"]) == (422, field)
