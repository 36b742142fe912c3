"""The cost of many readers with a page open."""

import asyncio

import pytest

from services.api import app
from services.api.http.pages.sessions import STALE_SECONDS, OpenSessions
from services.api.http.pages.visits import shared_reads
from shared.bus import standing
from shared.bus import standing as pressure
from shared.console import overview
from tests.commands import Commands
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import HERE, Browser
from tests.services.api.http.pages.test_sessions import is_open, signed_in

pytestmark = [pytest.mark.later("twenty viewers at a time"), pytest.mark.asyncio(loop_scope="module")]

VIEWERS, ROUNDS, REFRESH_SECONDS = 20, 3, 2
SUBSCRIPTIONS = 20
MOST_A_SECOND = {"": 5, f"/bus?namespace=user:{ADMIN}": (VIEWERS + SUBSCRIPTIONS) / REFRESH_SECONDS + 8}
"""Each viewer of the bus reads the list by themselves, which says whether they may; all share how each subscription of
it stands."""


@pytest.mark.parametrize("page", MOST_A_SECOND)
async def test_twenty_viewers_ask_the_database_little(
    commands: Commands, house: House, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    """By a clock of the test: on a slow machine more would be read anew."""
    now = [0.0]
    for name in ("SECONDS", "_COUNTED_SECONDS"):
        monkeypatch.setattr(overview, name, 3_600.0)
    for module in (pressure, standing):
        monkeypatch.setattr(module, "FRESH_SECONDS", 3_600.0)
    monkeypatch.setattr(app, "shared_reads", lambda: shared_reads(lambda: now[0]))
    monkeypatch.setattr(OpenSessions.__init__, "__kwdefaults__", {"monotonic": lambda: now[0]})
    watched = house.build()
    for number in range(SUBSCRIPTIONS):
        wish = {"callback": "https://example.com/events", "topics": ["orders"]}
        assert (await house.admin.put(f"/bus/subscriptions/viewed-{number}", wish)).status in {200, 201}
    browsers = [(await signed_in(house, watched, roles={"*": "viewer"}))[0] for _ in range(VIEWERS)]
    for browser in browsers:
        await browser.get(page)
        await refresh(browser, page)
    now[0] += STALE_SECONDS
    commands.by_collection.clear()
    for _ in range(ROUNDS):
        for browser in browsers:
            await refresh(browser, page)
            now[0] += REFRESH_SECONDS / VIEWERS
    # A look begins in the second before the first round, and one may in that behind the last.
    most = MOST_A_SECOND[page] * (ROUNDS + 1) * REFRESH_SECONDS
    assert 0 < commands.by_collection.total() <= most, commands.by_collection


async def refresh(browser: Browser, page: str = "") -> None:
    assert (await browser.get(page, hx_request="true")).status == 200


async def test_a_page_that_is_open_ends_with_its_session(house: House) -> None:
    browser, token_id = await signed_in(house)
    await refresh(browser)
    assert (await house.admin.delete(f"/tokens/{token_id}")).status == 204
    assert not await is_open(browser), "at once for who opens a page"
    await asyncio.sleep(STALE_SECONDS)
    assert "hx-redirect" in (await browser.get("", hx_request="true")).headers


async def test_whose_session_has_ended_does_nothing_any_more_whatever_asks(house: House) -> None:
    browser, token_id = await signed_in(house)
    await refresh(browser)
    assert (await house.admin.delete(f"/tokens/{token_id}")).status == 204
    made = await browser.post("/access/tokens", {"name": "hidden"}, **HERE, hx_request="true")
    assert "hx-redirect" in made.headers
    assert "hidden" not in [token["name"] for token in (await house.admin.get("/tokens?limit=200")).json]
