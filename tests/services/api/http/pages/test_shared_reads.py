"""What all who have a page open share: who opens it reads anew, and nobody gets what only others may see."""

import asyncio
from itertools import count

import pytest

from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.shared_reads import SharedReads
from shared.domain.errors import Unavailable
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

SCHEDULE = {"every": 60, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"a": 1}}}}


async def test_a_reading_is_shared_for_its_time_and_a_failure_is_not_kept() -> None:
    now, numbers = [0.0], count()
    reads = SharedReads(lambda: now[0])

    async def read() -> int:
        await asyncio.sleep(0)
        return next(numbers)

    async def fail() -> int:
        raise Unavailable("away")

    assert await asyncio.gather(*(reads.get("a", read, seconds=2) for _ in range(3))) == [0, 0, 0]
    assert (await reads.get("b", read, seconds=2), await reads.get("a", read, seconds=0)) == (1, 2)
    now[0] = 1.9
    assert await reads.get("a", fail, seconds=2) == 2
    now[0] = 2.0
    with pytest.raises(Unavailable):
        await reads.get("a", fail, seconds=2)
    assert await reads.get("a", read, seconds=2) == 3


async def test_many_who_open_a_page_at_once_do_not_wait_one_behind_the_other() -> None:
    reads, numbers, going_on = SharedReads(), count(), asyncio.Event()

    async def read() -> int:
        await going_on.wait()
        return next(numbers)

    openers = [asyncio.ensure_future(reads.get("a", read, seconds=0)) for _ in range(20)]
    await asyncio.sleep(0)
    going_on.set()
    assert await asyncio.gather(*openers) == [0, *[1] * 19]


async def test_who_waits_for_a_server_that_is_away_waits_once() -> None:
    tries, fails = 0, asyncio.Event()

    async def read() -> None:
        nonlocal tries
        tries += 1
        await fails.wait()
        raise Unavailable("away")

    reads = SharedReads()
    waiting = [asyncio.ensure_future(reads.get("all", read, seconds=2)) for _ in range(20)]
    await asyncio.sleep(0)
    fails.set()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, Unavailable) for each in ended)
    assert tries == 2, "the one that the first began, and one for all who came meanwhile"


async def test_who_asks_too_often_spoils_nobody_elses_page() -> None:
    reads, may_fail = SharedReads(), asyncio.Event()

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
