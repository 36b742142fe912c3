"""Lists whose items are large: pages end by bytes, `Link` leads through all of them, and none is a fault of ours."""

import pytest

from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = {f"a{number}": "x" * 60_000 for number in range(15)}


async def test_templates_of_a_megabyte_come_in_several_pages(house: House) -> None:
    app_id = await house.app()
    for number in range(20):
        template = {"name": f"n{number}", "locale": "en", "body": MEGABYTE}
        assert (await house.admin.post(f"/apps/{app_id}/templates", template)).status == 201
    path, read, pages = f"/apps/{app_id}/templates", [], 0
    while path:
        reply = await house.admin.get(path)
        assert reply.status == 200
        assert len(reply.body) < 9_000_000
        read += [each["name"] for each in reply.json]
        link = reply.headers.get("link", "")
        path, pages = link.partition("<")[2].partition(">")[0], pages + 1
    assert sorted(read) == sorted(f"n{number}" for number in range(20))
    assert pages == 3


@pytest.mark.slow
async def test_jobs_with_contexts_of_a_megabyte_are_listed_without_them(house: House) -> None:
    app_id = await house.app_with_template()
    made = []
    for _ in range(60):
        reply = await house.admin.post(
            f"/apps/{app_id}/jobs?template=like", {"service": "apns", "context": {"user": "Ana", "other": MEGABYTE}}
        )
        assert reply.status == 201, reply.body
        made.append(reply.json["id"])
    listed = await house.admin.get(f"/apps/{app_id}/jobs")
    assert {job["id"] for job in listed.json} == set(made)
    assert all(job["context"] == {} for job in listed.json)
    assert "link" not in listed.headers
    shown = await house.admin.get(f"/apps/{app_id}/jobs/{made[0]}")
    assert shown.json["context"]["other"] == MEGABYTE


@pytest.mark.slow
async def test_a_group_of_jobs_with_large_contexts_is_shown(house: House) -> None:
    app_id = await house.app_with_template()
    starts_at = house.clock.now_ns() + 30 * 3_600 * 10**9
    job = {"service": "apns", "context": {"user": "Ana", "other": MEGABYTE}, "localized": True, "startsAt": starts_at}
    made = await house.admin.post(f"/apps/{app_id}/jobs?template=like", job)
    assert made.status == 201, made.body
    group = await house.admin.get(f"/apps/{app_id}/groups/{made.json['jobGroupId']}")
    assert group.status == 200
    assert len(group.json["zones"]) > 30
