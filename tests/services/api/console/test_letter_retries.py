"""Many dead letters tried again by one request: up to 500 before it answers, more by a bulk action."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from services.api.console.letter_retries import RETRIED_AT_ONCE
from services.wiring.rooms import Rooms
from services.worker.console.bulk import BulkRunner
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from shared.console.rules.bulk_actions import OPEN_AT_ONCE, RunBulkAction
from tests.services.api.client import Client
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE: dict[str, Any] = {"every": 3600, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": 1}}}
DIED = datetime(2026, 1, 1, tzinfo=UTC)
MANY = RETRIED_AT_ONCE + 1


async def service(house: House) -> tuple[Client, str]:
    """A caller with a schedule `k`."""
    made = (await house.admin.post("/tokens", {"name": "service"})).json
    client = house.admin.service(made["token"])
    assert (await client.post("/schedules", SCHEDULE | {"key": "k"})).status == 201
    return client, made["namespace"]


async def bury(house: House, namespace: str, count: int, key: str = "k", *, died_at: datetime = DIED) -> None:
    await house.store.dead_letters.add([
        DeadLetter(
            id=f"{namespace}-{key}-{n}", death=f"{namespace}-{key}-{n}",
            namespace=namespace, key=key, schedule_id=schedule_id(namespace, key),
            generation="g", due=DIED, died_at=died_at, attempts=3, error="404 Not Found",
        )
        for n in range(count)
    ])  # fmt: skip


async def work(house: House, action_id: str) -> None:
    await BulkRunner(Rooms(house.servers).console.bulk).run(RunBulkAction(action_id=action_id))


async def test_up_to_500_are_tried_again_before_the_answer(house: House) -> None:
    client, namespace = await service(house)
    await bury(house, namespace, RETRIED_AT_ONCE)
    reply = await client.post("/dead-letters/retry")
    assert (reply.status, reply.json, "location" in reply.headers) == (200, {"retried": RETRIED_AT_ONCE}, False)
    assert (await client.get("/bulk-actions")).json == []
    assert (await client.post("/dead-letters/retry")).json == {"retried": 0}


async def test_more_are_tried_again_by_a_bulk_action(house: House) -> None:
    client, namespace = await service(house)
    await bury(house, namespace, MANY)
    await bury(house, namespace, 2, key="other")
    reply = await client.post("/dead-letters/retry", {"key": "k"}, x_carillon_reason="the target is back")
    action_id = reply.json["bulkAction"]
    assert (reply.status, reply.json) == (202, {"retried": MANY, "bulkAction": action_id})
    assert reply.headers["location"] == f"/bulk-actions/{action_id}"
    waiting = (await client.get(reply.headers["location"])).json
    assert (waiting["act"], waiting["filter"]) == ("dead-letter.retry", {"namespace": namespace, "key": "k"})
    assert (waiting["reason"], waiting["matched"]) == ("the target is back", MANY)
    await work(house, action_id)
    done = (await client.get(reply.headers["location"])).json
    assert (done["state"], done["done"], done["failed"]) == ("done", MANY, 0)
    assert {each["key"] for each in (await client.get("/dead-letters")).json} == {"other"}
    [record] = (await house.admin.get(f"/audit?by={namespace.replace(':', '%3A')}&act=dead-letter.retry-many")).json
    assert (record["outcome"], record["count"], record["reason"]) == ("done", MANY, "the target is back")


async def test_who_asks_again_gets_the_action_that_is_underway(house: House) -> None:
    client, namespace = await service(house)
    await bury(house, namespace, MANY)
    first = await client.post("/dead-letters/retry")
    again = await client.post("/dead-letters/retry")
    assert (again.status, again.json) == (202, first.json)
    of_the_key = await client.post("/dead-letters/retry", {"key": "k"})
    assert of_the_key.json["bulkAction"] != first.json["bulkAction"]
    assert len((await client.get("/bulk-actions")).json) == 2
    await bury(house, namespace, 1, key="late", died_at=await house.store.now() + timedelta(seconds=1))
    later = await client.post("/dead-letters/retry")
    assert later.json["bulkAction"] not in {first.json["bulkAction"], of_the_key.json["bulkAction"]}
    await work(house, first.json["bulkAction"])
    assert (await client.post("/dead-letters/retry")).json == {"retried": 0}


async def test_a_namespace_has_so_many_actions_underway(house: House) -> None:
    client, namespace = await service(house)
    await bury(house, namespace, MANY)
    for n in range(OPEN_AT_ONCE):
        body = {"act": "dead-letter.retry", "filter": {"key": f"k{n}"}, "reason": "why not"}
        assert (await client.post("/bulk-actions", body)).status == 202
    assert (await client.post("/dead-letters/retry")).status == 409
