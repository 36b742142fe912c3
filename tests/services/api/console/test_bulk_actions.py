"""Bulk actions over HTTP: who may make, see and cancel them, and what is asked of a request."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.wiring.rooms import Rooms
from services.worker.console.bulk import BulkRunner
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from shared.console.rules.bulk_actions import RunBulkAction
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE: dict[str, Any] = {"every": 3600, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": 1}}}
DIED = datetime(2026, 1, 1, tzinfo=UTC)


async def service(house: House, **fields: Any) -> tuple[Client, str]:
    made = (await house.admin.post("/tokens", {"name": "service", **fields})).json
    return house.admin.service(made["token"]), made["namespace"]


async def buried(house: House, namespace: str, count: int, key: str = "k") -> None:
    await house.store.dead_letters.add([
        DeadLetter(
            id=f"{namespace}-{key}-{n}", death=f"{namespace}-{key}-{n}",
            namespace=namespace, key=key, schedule_id=schedule_id(namespace, key),
            generation="g", due=DIED + timedelta(seconds=n), died_at=DIED, attempts=3, error="404 Not Found",
        )
        for n in range(count)
    ])  # fmt: skip


def retry(**filter: Any) -> dict[str, Any]:
    return {"act": "dead-letter.retry", "filter": filter, "reason": "the target is back"}


async def work(house: House, made: Reply) -> None:
    runner = BulkRunner(Rooms(house.servers).console.bulk)
    await runner.run(RunBulkAction(action_id=made.json["id"]))


async def test_dead_letters_are_retried_and_the_audit_tells_how_many_and_why(house: House) -> None:
    client, namespace = await service(house)
    assert (await client.post("/schedules", SCHEDULE | {"key": "k"})).status == 201
    await buried(house, namespace, 7)
    made = await client.post("/bulk-actions", retry(key="k"))
    assert made.status == 202, made.body
    assert (made.json["state"], made.json["matched"], made.json["done"]) == ("waiting", 7, 0)
    assert made.json["filter"] == {"namespace": namespace, "key": "k"}
    await work(house, made)
    shown = (await client.get(f"/bulk-actions/{made.json['id']}")).json
    assert (shown["state"], shown["done"], shown["skipped"], shown["failed"]) == ("done", 7, 0, 0)
    assert (await client.get("/dead-letters")).json == []
    [record] = (await house.admin.get(f"/audit?on={made.json['id']}")).json
    told = (record["act"], record["reason"], record["count"], record["outcome"])
    assert told == ("bulk-action.create", "the target is back", 7, "done")


async def test_a_dry_run_tells_the_figure_and_does_nothing(house: House) -> None:
    client, namespace = await service(house)
    await buried(house, namespace, 3)
    before = (await house.admin.get(f"/audit?by={namespace.replace(':', '%3A')}")).json
    told = await client.post("/bulk-actions?dryRun=true", retry(key="k"))
    assert (told.status, told.json["matched"], told.json["devicesNotReached"]) == (200, 3, None)
    assert (await client.get("/bulk-actions")).json == []
    assert (await house.admin.get(f"/audit?by={namespace.replace(':', '%3A')}")).json == before
    for value in ("1", "yes", "TRUE"):
        refused = await client.post(f"/bulk-actions?dryRun={value}", retry(key="k"))
        assert (refused.status, refused.json["field"]) == (422, "dryRun")
    assert (await client.get("/bulk-actions")).json == []


async def test_more_than_expected_is_a_409_with_the_figure(house: House) -> None:
    client, namespace = await service(house)
    await buried(house, namespace, 3)
    refused = await client.post("/bulk-actions", retry(key="k") | {"atMost": 2})
    assert (refused.status, refused.json["field"], "3 match" in refused.json["reason"]) == (409, "atMost", True)
    assert (await client.post("/bulk-actions", retry(key="k") | {"atMost": 3})).status == 202


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"filter": {}}, "filter"),
        ({"filter": {"key": ""}}, "filter.key"),
        ({"filter": {"prefix": "a"}}, "filter.prefix"),
        ({"filter": {"keys": "a"}}, "filter.keys"),
        ({"filter": {"namespace": "nobody"}}, "filter.namespace"),
        ({"act": "schedule.pause", "filter": {"namespace": "*"}}, "filter.namespace"),
        ({"act": "schedule.delete", "filter": {"state": "gone"}}, "filter.state"),
        ({"act": "job.stop", "filter": {"app": "1"}}, "filter.app"),
        ({"act": "job.stop", "filter": {"key": "a"}}, "filter.key"),
        ({"act": "app.delete"}, "act"),
        ({"reason": " "}, "reason"),
        ({"reason": "x" * 1_001}, "reason"),
        ({"atMost": -1}, "atMost"),
        ({"at_most": 1}, "at_most"),
    ],
)
async def test_what_cannot_be_meant_is_refused(house: House, change: dict[str, Any], field: str) -> None:
    refused = await house.admin.post("/bulk-actions", retry(key="k") | change)
    assert (refused.status, refused.json["field"]) == (422, field), refused.body


async def test_the_maker_needs_the_role_over_all_that_may_match(house: House) -> None:
    app, other = await house.app(), await house.app()
    _, theirs = await service(house)
    over = {f"namespace/{theirs}": "operator", f"app/{other}": "viewer"}
    client, _ = await service(house, allowedApps=[app], roles=over)
    stop = {"act": "job.stop", "reason": "wrong text"}
    for body, status in (
        (stop | {"filter": {"app": app}}, 202),
        (stop | {"filter": {"app": other}}, 403),
        (stop | {"filter": {"status": "running"}}, 403),
        (retry(namespace=theirs), 202),
        (retry(namespace="token:another"), 403),
        (retry(namespace="*"), 403),
    ):
        assert (await client.post("/bulk-actions", body)).status == status, body
        assert (await client.post("/bulk-actions?dryRun=true", body)).status == min(status, 403) - 2 * (status == 202)


async def test_who_has_nothing_to_do_with_an_action_does_not_see_it(house: House) -> None:
    client, namespace = await service(house)
    viewer, _ = await service(house, roles={f"namespace/{namespace}": "viewer"})
    operator, _ = await service(house, roles={f"namespace/{namespace}": "operator"})
    stranger, _ = await service(house)
    await buried(house, namespace, 1)
    made = await client.post("/bulk-actions", retry(error="404 Not Found"))
    path = f"/bulk-actions/{made.json['id']}"
    assert (await stranger.get(path)).status == 404
    assert (await stranger.post(path + "/cancel")).status == 404
    seen = (await viewer.get(path)).json
    assert (seen["redacted"], seen["filter"]["error"]) == (True, "…")
    assert (await viewer.post(path + "/cancel")).status == 403
    assert [each["id"] for each in (await client.get("/bulk-actions")).json] == [made.json["id"]]
    assert (await operator.get("/bulk-actions")).json == []
    assert made.json["id"] in [each["id"] for each in (await house.admin.get("/bulk-actions")).json]
    cancelled = await operator.post(path + "/cancel")
    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert (await client.post(path + "/cancel")).status == 409
    await work(house, made)
    assert len((await client.get("/dead-letters")).json) == 1


async def test_a_repeated_request_makes_one_action(house: House) -> None:
    client, namespace = await service(house)
    await buried(house, namespace, 2)
    key = {"idempotency-key": "once"}
    first = await client.post("/bulk-actions", retry(key="k") | {"atMost": 2}, **key)
    await buried(house, namespace, 9)
    again = await client.post("/bulk-actions", retry(key="k") | {"atMost": 2}, **key)
    assert (first.status, again.status, again.json["id"]) == (202, 202, first.json["id"])
    assert len((await client.get("/bulk-actions")).json) == 1
    other = await client.post("/bulk-actions", retry(key="l"), **key)
    assert (other.status, other.json["field"]) == (422, "Idempotency-Key")


async def test_jobs_are_paused_resumed_and_stopped_with_figures(house: House) -> None:
    app = await house.app_with_template()
    far = house.clock.now_ns() + 10**15
    job = {"service": "apns", "filters": {}, "context": {}, "metadata": {}, "startsAt": far}
    ids = [(await house.admin.post(f"/apps/{app}/jobs?template=like", job)).json["id"] for _ in range(3)]
    for act, status in (("job.pause", "paused"), ("job.resume", ""), ("job.stop", "stopped")):
        body = {"act": act, "filter": {"app": app}, "reason": "wrong text"}
        told = (await house.admin.post("/bulk-actions?dryRun=true", body)).json
        assert (told["matched"], told["unplanned"]) == (3, 3 if act == "job.stop" else None)
        made = await house.admin.post("/bulk-actions", body)
        await work(house, made)
        ended = (await house.admin.get(f"/bulk-actions/{made.json['id']}")).json
        assert (ended["state"], ended["done"]) == ("done", 3)
        statuses = {(await house.admin.get(f"/apps/{app}/jobs/{id}")).json["status"] for id in ids}
        assert statuses == {status}
