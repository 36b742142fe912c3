"""Debian's Chromium, and what somebody sees of a page in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.stack import MissingPart
from tests.stack.install import need_program
from tests.stack.npm import need_packages
from tests.stack.server import Missing

WIDE, NARROW = 1_280, 360
_HEIGHT = 800
_PATIENCE_MS = 60_000
_SERIOUS = {"serious", "critical"}
_AXE = Path(__file__).parent / "axe"
# An element may scroll what is too wide in itself; the page must not.
_TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_RUN_AXE = """async (rules) => {
    const options = rules.length ? { runOnly: { type: "rule", values: rules } } : {};
    const found = await axe.run(document, { resultTypes: ["violations"], ...options });
    return found.violations.map((each) => [each.impact, each.id, each.nodes.map((node) => node.html.slice(0, 160))]);
}"""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser without windows. Raises `MissingPart`."""
    try:
        path = need_program("chromium", "chromium")
    except Missing as reason:
        raise MissingPart(f"Chromium: {reason}") from None
    expect.set_options(timeout=_PATIENCE_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        await browser.close()


def read_axe() -> str:
    """The script of axe-core. Raises `MissingPart`."""
    try:
        return (need_packages(_AXE) / "axe-core" / "axe.min.js").read_text("utf-8")
    except Missing as reason:
        raise MissingPart(f"axe-core: {reason}") from None


@dataclass
class Screen:
    """A person's window, and what went wrong in it."""

    base: str
    context: BrowserContext
    page: Page
    faults: list[str] = field(default_factory=list)

    def take_faults(self) -> list[str]:
        """What went wrong since somebody asked last."""
        faults, self.faults[:] = list(self.faults), []
        return faults

    async def open(self, path: str) -> int:
        """Go to a page below `/ui`: its status."""
        answer = await self.page.goto(f"{self.base}/ui{path}")
        assert answer is not None
        return answer.status

    async def sign_in(self, token: str) -> None:
        """Sign in, as a person does."""
        await self.open("/sign-in")
        await self.page.fill("input[name=token]", token)
        await self.page.click("button[type=submit]")
        await self.page.wait_for_selector("main#main")

    async def show_as(self, width: int, theme: Any) -> None:
        """Make the window so wide, and it light or dark."""
        await self.page.set_viewport_size({"width": width, "height": _HEIGHT})
        await self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")

    async def find_overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return int(await self.page.evaluate(_TOO_WIDE))

    async def find_barriers(self, axe: str, *rules: str) -> list[Any]:
        """What of the page keeps people out, by all rules of axe-core or by these. A policy of the page does not bind
        what a debugger runs."""
        await self.page.evaluate(axe)
        return [each for each in await self.page.evaluate(_RUN_AXE, list(rules)) if each[0] in _SERIOUS]


@asynccontextmanager
async def screen(browser: Browser, base: str, **options: Any) -> AsyncIterator[Screen]:
    """A window of a browser that knows nothing yet."""
    context = await browser.new_context(viewport={"width": WIDE, "height": _HEIGHT}, reduced_motion="reduce", **options)
    context.set_default_timeout(_PATIENCE_MS)
    page = await context.new_page()
    shown = Screen(base, context, page)
    page.on("console", lambda message: _note(shown, message.type, message.text, message.location.get("url", "")))
    page.on("pageerror", lambda error: shown.faults.append(f"script: {error}"))
    page.on("request", lambda request: _check_address(shown, request.url))
    yield shown
    await context.close()


def _note(shown: Screen, kind: str, text: str, where: str) -> None:
    if kind in {"error", "warning"}:
        shown.faults.append(f"console: {text} {where}")


def _check_address(shown: Screen, url: str) -> None:
    if not url.startswith(f"{shown.base}/") and urlsplit(url).scheme != "data":
        shown.faults.append(f"asks elsewhere: {url}")
