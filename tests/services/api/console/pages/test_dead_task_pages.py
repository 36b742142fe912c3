"""The page of dead tasks, for admins alone."""

import pytest

from services.api.http.pages import typed
from shared.domain.jobs.tasks import MAIL_QUEUE
from tests.services.api.clock.pages.seen import fill, look, person
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

TASKS, DEAD = "/dead-letters/tasks", f"{MAIL_QUEUE}.dlq"


async def test_dead_tasks_are_shown_returned_and_purged(house: House) -> None:
    await house.broker.publish(DEAD, b'{"type":"<marquee>new</marquee>"}')
    page = await look(house.admin, TASKS, queue=MAIL_QUEUE)
    assert "1 dead" in page.text
    assert '"type": "<marquee>new</marquee>"' in page.text
    assert page.is_clean
    done = await fill(house.admin, f"{TASKS}/return", {"reason": "mended"}, queue=MAIL_QUEUE)
    assert done.headers["location"] == f"/ui{TASKS}?queue={MAIL_QUEUE}&said=returned&count=1"
    assert await house.broker.depth(DEAD) == 0
    await house.broker.publish(DEAD, b"x")
    done = await fill(house.admin, f"{TASKS}/purge", queue=MAIL_QUEUE)
    assert done.headers["location"] == f"/ui{TASKS}?said=purged&count=1"
    assert "This queue has no dead tasks" in (await look(house.admin, TASKS, queue=MAIL_QUEUE)).text
    assert (await look(house.admin, TASKS, queue="orders")).status == 404


async def test_many_are_dropped_only_by_name(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed, "MANY_THINGS", 0)
    await house.broker.publish(DEAD, b"x")
    refused = await fill(house.admin, f"{TASKS}/purge", {"named": "another"}, queue=MAIL_QUEUE)
    assert (refused.status, await house.broker.depth(DEAD)) == (422, 1)
    assert (await fill(house.admin, f"{TASKS}/purge", {"named": MAIL_QUEUE}, queue=MAIL_QUEUE)).status == 303


async def test_others_see_neither_the_page_nor_a_link_to_it(house: House) -> None:
    operator, _ = await person(house, roles={"*": "operator"})
    assert f"/ui{TASKS}" in (await look(house.admin, "/dead-letters")).links
    assert f"/ui{TASKS}" not in (await look(operator, "/dead-letters")).links
    assert (await look(operator, TASKS, queue=MAIL_QUEUE)).status == 403
