"""What many who have the same page open cost the database together."""

import asyncio
from time import perf_counter

from services.wiring.api import build_api
from tests.bench.explained import Commands
from tests.bench.place import ADMIN
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.e2e.house import House
from tests.services.api.client import Client
from tests.services.api.http.pages.browser import Browser

_VIEWERS, _ROUNDS, _EVERY_SECONDS, _WARM_ROUNDS = 20, 10, 2.0, 2
_QUERIES = 5


async def measure_viewers(house: House, commands: Commands, paths: dict[str, str]) -> Measured:
    """Admins who each have a session of their own. `paths` are pages below `/ui`, by what they are called."""
    admin = Client(build_api(house.rooms), {"x-forwarded-email": ADMIN})
    browsers = [await _sign_in(admin) for _ in range(_VIEWERS)]
    figures = [await _watch_all(browsers, commands, what, path) for what, path in paths.items()]
    note = (
        f"{_VIEWERS} admins with a session each have the same page open, which asks for itself every "
        f"{_EVERY_SECONDS:g} s, for {_ROUNDS * _EVERY_SECONDS:g} s, by one API process. Queries are those that reach "
        "MongoDB, without the further parts of long answers."
    )
    return Measured(f"console: {_VIEWERS} viewers", figures, [note])


async def _sign_in(admin: Client) -> Browser:
    made = await admin.post("/tokens", {"name": "viewer", "isAdmin": True})
    browser = Browser(admin.app)
    await browser.sign_in(made.json["token"])
    return browser


async def _watch_all(browsers: list[Browser], commands: Commands, what: str, path: str) -> Figure:
    await _refresh_all(browsers, path, _WARM_ROUNDS)
    commands.take()
    began = perf_counter()
    await _refresh_all(browsers, path, _ROUNDS)
    rate = len(commands.take()) / (perf_counter() - began)
    return Figure(what, [rate], "queries/s", Target(_QUERIES, at_most=True))


async def _refresh_all(browsers: list[Browser], path: str, rounds: int) -> None:
    await asyncio.gather(*(_refresh(browser, path, rounds, number) for number, browser in enumerate(browsers)))


async def _refresh(browser: Browser, path: str, rounds: int, number: int) -> None:
    await asyncio.sleep(_EVERY_SECONDS * number / _VIEWERS)
    for _ in range(rounds):
        shown = await browser.get(path, hx_request="true")
        if shown.status != 200:
            raise Wrong(f"{path}: {shown.status} {shown.body[:300]!r}")
        await asyncio.sleep(_EVERY_SECONDS)
