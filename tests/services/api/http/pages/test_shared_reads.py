"""What all who have a page open share: who opens it reads anew, and nobody gets what only others may see."""

import asyncio

import pytest

from services.api.http.pages.visits import ApiProblem, shared_reads
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE = {"every": 60, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"a": 1}}}}


async def test_who_asks_too_often_spoils_nobody_elses_page() -> None:
    reads, may_fail = shared_reads(), asyncio.Event()

    async def refuse() -> None:
        await may_fail.wait()
        raise ApiProblem(429, "more than 500 requests a second of token:billing")

    async def read() -> str:
        return "all of it"

    busy = asyncio.ensure_future(reads.get("page", refuse, seconds=2))
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(reads.get("page", read, seconds=2)) for _ in range(3)]
    await asyncio.sleep(0)
    may_fail.set()
    with pytest.raises(ApiProblem):
        await busy
    assert await asyncio.gather(*others) == ["all of it"] * 3


async def test_nobody_is_shown_what_was_read_for_who_may_see_more(house: House) -> None:
    await house.admin.post("/schedules", SCHEDULE | {"key": "hidden-from-others"})
    made = await house.admin.post("/users", {"email": "stranger@example.com"})
    assert made.status == 201, made.body
    stranger = house.admin.someone("stranger@example.com")
    for query in ("?namespace=*", f"?namespace=user:{ADMIN}"):
        path = f"/ui/schedules{query}"
        shown = await house.admin.get(path, hx_request="true")
        assert (shown.status, b"hidden-from-others" in shown.body) == (200, True)
        refused = await stranger.get(path, hx_request="true")
        assert (refused.status, b"hidden-from-others" in refused.body) == (403, False)
    own = await stranger.get("/ui/schedules", hx_request="true")
    assert (own.status, ADMIN.encode() in own.body) == (200, False)
    assert (await stranger.get("/ui/dead-letters", hx_request="true")).status == 200


async def test_who_opens_a_page_sees_what_was_just_made(house: House) -> None:
    await house.admin.get("/ui/schedules", hx_request="true")
    await house.admin.post("/schedules", SCHEDULE | {"key": "made-just-now"})
    assert b"made-just-now" in (await house.admin.get("/ui/schedules")).body
    assert b"made-just-now" in (await house.admin.get("/ui/schedules", hx_request="true")).body
