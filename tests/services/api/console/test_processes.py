"""What runs, what waits and what was done, as the API shows it."""

import pytest

from tests.console.rules.test_processes import a_process
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_processes_are_shown_with_their_state(house: House) -> None:
    await house.store.processes.tell(a_process(id="host/7/x"))
    [shown] = [each for each in (await house.admin.get("/processes")).json if each["id"] == "host/7/x"]
    assert (shown["state"], shown["roles"], shown["startedAt"]) == ("alive", ["worker"], "2030-01-01T12:00:00Z")


async def test_queues_are_shown_with_what_waits(house: House) -> None:
    await house.broker.publish("push.mail", b"x")
    listed = {queue["name"]: queue for queue in (await house.admin.get("/queues")).json}
    assert listed["push.mail"]["ready"] == 1
    assert "push.mail.dlq" not in listed


async def test_minutes_are_shown_as_far_back_as_is_asked(house: House) -> None:
    await house.store.minutes.add(await house.store.now(), {"requests": 3, "recipients": {"sent": 5}})
    last = (await house.admin.get("/minutes")).json[-1]
    assert (last["requests"], last["recipients"]) == (3, {"sent": 5})
    for wrong in ("0", "x", "11521", "-1", "1.5"):
        answer = await house.admin.get(f"/minutes?minutes={wrong}")
        assert (answer.status, answer.json["field"]) == (422, "minutes")
    assert (await house.admin.get("/minutes?minutes=11520")).status == 200


async def test_only_who_sees_everything_sees_them(house: House) -> None:
    app_id = await house.app()
    limited = await house.service(app_id)
    made = await house.admin.post("/tokens", {"name": "viewer", "roles": {"*": "viewer"}})
    viewer = house.admin.service(made.json["token"])
    for path in ("/processes", "/queues", "/minutes"):
        assert (await limited.get(path)).status == 403
        assert (await viewer.get(path)).status == 200
