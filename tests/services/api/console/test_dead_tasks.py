"""Dead tasks over HTTP: shown, returned and purged, by admins alone."""

import pytest

from shared.domain.jobs.tasks import MAIL_QUEUE
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

DEAD = f"{MAIL_QUEUE}.dlq"
PATH = f"/queues/{MAIL_QUEUE}/dead"


async def bury(house: House, *bodies: bytes) -> None:
    await house.broker.purge(MAIL_QUEUE)
    await house.broker.purge(DEAD)
    for body in bodies:
        await house.broker.publish(DEAD, body)


async def test_dead_tasks_are_shown_and_stay(house: House) -> None:
    await bury(house, b'{"type":"new"}', b"\xff", b"x" * 10_000)
    for _ in range(2):
        told = (await house.admin.get(PATH)).json
        assert (told["queue"], told["dead"]) == (MAIL_QUEUE, 3)
        assert [each["bytes"] for each in told["messages"]] == [14, 1, 10_000]
        assert told["messages"][0]["text"] == '{"type":"new"}'
        assert len(told["messages"][2]["text"]) == 4_096
    assert len((await house.admin.get(f"{PATH}?limit=1")).json["messages"]) == 1
    for limit in ("0", "101", "x"):
        assert (await house.admin.get(f"{PATH}?limit={limit}")).json["field"] == "limit"


async def test_dead_tasks_go_back_into_their_queue(house: House) -> None:
    await bury(house, *(b"%d" % n for n in range(501)))
    told = await house.admin.post(f"{PATH}/return")
    assert (told.status, told.json) == (200, {"returned": 500, "left": 1})
    assert (await house.broker.depth(MAIL_QUEUE), await house.broker.depth(DEAD)) == (500, 1)
    acts = (await house.admin.get(f"/audit?on={MAIL_QUEUE}&act=queue.return")).json
    assert [each["outcome"] for each in acts] == ["done"]
    await bury(house)


async def test_dead_tasks_are_dropped(house: House) -> None:
    await bury(house, b"a", b"b")
    assert (await house.admin.post(f"{PATH}/purge")).json == {"purged": 2}
    assert await house.broker.depth(DEAD) == 0
    acts = (await house.admin.get(f"/audit?on={MAIL_QUEUE}&act=queue.purge")).json
    assert [each["outcome"] for each in acts] == ["done"]


@pytest.mark.parametrize("queue", ["orders", "push.mail.dlq", "amq.direct"])
async def test_queues_of_others_are_out_of_reach(house: House, queue: str) -> None:
    assert (await house.admin.get(f"/queues/{queue}/dead")).status == 404
    for act in ("return", "purge"):
        assert (await house.admin.post(f"/queues/{queue}/dead/{act}")).status == 404


async def test_only_admins_look_at_queues(house: House) -> None:
    service = await house.service()
    assert (await service.get(PATH)).status == 403
    for act in ("return", "purge"):
        assert (await service.post(f"{PATH}/{act}")).status == 403
