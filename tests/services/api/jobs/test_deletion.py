"""`DELETE` of a job that has ended."""

from typing import Any

import pytest

from shared.jobs.rules.batches import Receipt, Totals
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def make(house: House) -> tuple[str, dict[str, Any]]:
    """The path of a new job that waits for its start, and the job."""
    app = await house.app_with_template()
    body = {"service": "apns", "filters": {}, "context": {"user": "Bo"}, "startsAt": house.clock.now_ns() + 10**15}
    made = (await house.admin.post(f"/apps/{app}/jobs?template=like", body)).json
    return f"/apps/{app}/jobs/{made['id']}", made


async def end(house: House, path: str, job_id: str) -> None:
    assert (await house.admin.put(f"{path}/stop")).status == 200
    await house.store.jobs.end_plan(job_id, end=0)
    assert await house.store.jobs.close(job_id, totals=Totals(), summed=Receipt(), completed_at=1) is not None


async def test_an_ended_job_is_deleted_and_the_audit_tells_who_did_it(house: House) -> None:
    path, job = await make(house)
    await end(house, path, job["id"])
    assert (await house.admin.delete(path)).status == 204
    assert (await house.admin.get(path)).status == 404
    assert (await house.admin.delete(path)).status == 404
    acts = (await house.admin.get(f"/audit?on={job['id']}&act=job.delete")).json
    assert {each["outcome"] for each in acts} == {"done", "refused"}
    assert "Bo" not in str(acts)


async def test_an_open_job_is_a_conflict_that_tells_to_stop_it(house: House) -> None:
    path, _ = await make(house)
    refused = await house.admin.delete(path)
    assert (refused.status, refused.json["field"]) == (409, "jobId")
    assert "stop it" in refused.json["reason"]
    assert (await house.admin.get(path)).json["status"] == ""


async def test_where_there_is_much_the_job_is_there_until_the_rest_has_gone(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, job = await make(house)
    await end(house, path, job["id"])

    async def remove_nothing(*_: object) -> None: ...

    with monkeypatch.context() as patched:
        patched.setattr("shared.jobs.retention.JobRemoval.remove_some", remove_nothing)
        patched.setattr("services.api.jobs.moves.REQUEST_SECONDS", 0.0)
        accepted = await house.admin.delete(path)
    assert (accepted.status, accepted.json["id"]) == (202, job["id"])
    assert (await house.admin.delete(path)).status == 204
    assert (await house.admin.get(path)).status == 404


async def test_viewers_may_not_delete(house: House) -> None:
    path, job = await make(house)
    await end(house, path, job["id"])
    made = await house.admin.post("/tokens", {"name": "viewer", "roles": {"*": "viewer"}})
    assert (await house.admin.service(made.json["token"]).delete(path)).status == 403
    assert (await house.admin.get(path)).status == 200
