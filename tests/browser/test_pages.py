"""Every page in a real browser: it loads, is readable at any width in any light, and works without a mouse or scripts.

Pages are found by `build_pages`, so a new one is tested by being there; one with a parameter in its path
has tests of its own.
"""

import re

import pytest
from playwright.async_api import Browser, Route, expect

from services.wiring.api import build_pages
from services.wiring.rooms import Rooms
from tests.browser.conftest import Instance
from tests.browser.screen import NARROW, WIDE, Screen, screen
from tests.services.api.conftest import House

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

_FOCUS = """[
    document.activeElement.outerHTML.slice(0, 200), getComputedStyle(document.activeElement).outlineStyle,
    document.activeElement.getBoundingClientRect().width,
]"""
_SQUEEZED = """[...document.querySelectorAll(".facts > dd")].filter((each) => {
    const [room, whole] = [each, each.parentElement].map((one) => one.getBoundingClientRect().width);
    return whole && room < whole / 2;
}).map((each) => each.innerText)"""
# Rules that another shape of the page may break; the wide one has been checked for all of them.
_OF_SHAPE = ("aria-hidden-focus", "label", "link-name", "list", "region", "scrollable-region-focusable", "target-size")
TOLD_MS = 50_000
BACK_MS = 60_000


def pages(house: House) -> list[str]:
    """The paths of all pages without a parameter."""
    paths = [route.path for each in build_pages(Rooms(house.servers)) for route, _ in each.page_routes()]
    return ["" if path == "/" else path for path in paths if "{" not in path]


async def test_every_page_is_readable_by_everybody(house: House, admin: Screen, axe: str) -> None:
    faults: list[str] = []
    for path in pages(house):
        await admin.show_as(WIDE, "light")
        status = await admin.open(path)
        found = [] if status == 200 else [f"status {status}"]
        found += await barriers(admin, axe)
        faults += [f"{path or '/'}: {fault}" for fault in found + admin.take_faults()]
    assert len(pages(house)) > 3
    assert faults == []


async def barriers(shown: Screen, axe: str) -> list[str]:
    """Barriers of a page at each width and in each light."""
    found = [f"light: {each}" for each in await shown.find_barriers(axe)]
    await shown.show_as(WIDE, "dark")
    found += [f"dark: {each}" for each in await shown.find_barriers(axe, "color-contrast")]
    for width in (WIDE, NARROW):
        for theme in ("light", "dark"):
            await shown.show_as(width, theme)
            if pixels := await shown.find_overflow():
                found.append(f"{pixels} pixels wider than {width}, {theme}")
    found += [f"narrow: no room for {each}" for each in await shown.page.evaluate(_SQUEEZED)]
    found += [f"narrow: {each}" for each in await shown.find_barriers(axe, *_OF_SHAPE)]
    return found


async def test_the_door_is_readable_by_everybody(browser: Browser, instance: Instance, axe: str) -> None:
    async with screen(browser, instance.base) as stranger:
        assert await stranger.open("/sign-in") == 200
        assert await barriers(stranger, axe) + stranger.take_faults() == []


async def test_a_page_needs_no_mouse(admin: Screen) -> None:
    await admin.show_as(WIDE, "light")
    await admin.open("/processes")
    await admin.page.keyboard.press("Tab")
    await expect(admin.page.locator(".skip")).to_be_in_viewport()
    await admin.page.keyboard.press("Enter")
    assert admin.page.url.endswith("#main")
    await admin.open("/access")
    seen: set[str] = set()
    while True:
        await admin.page.keyboard.press("Tab")
        name, style, width = await admin.page.evaluate(_FOCUS)
        if name in seen or name.startswith("<body"):
            break
        seen.add(name)
        assert (style, width > 0) == ("solid", True), name
    assert len(seen) > 15
    assert admin.take_faults() == []


async def test_keys_lead_to_a_wrong_field_and_out_of_a_question(admin: Screen, instance: Instance) -> None:
    page = admin.page
    await admin.open("/access")
    await page.click("summary:has-text('Add a user')")
    await page.fill("input[name=email]", "cleo@example.com")
    await page.fill("form[action$='/access/users'] textarea", "nonsense")
    await page.click("button:has-text('Add the user')")
    await expect(page.locator("form[action$='/access/users'] textarea")).to_be_focused()
    app_id = await instance.house.app_with_template()
    await admin.open(f"/apps/{app_id}")
    question = page.locator("details.ask").last
    await question.locator("summary").click()
    await question.locator("input:visible").first.focus()
    await page.keyboard.press("Escape")
    await expect(question).not_to_have_attribute("open", "")
    await expect(question.locator("summary")).to_be_focused()
    assert [fault for fault in admin.take_faults() if "422" not in fault] == []


async def test_without_scripts_people_sign_in_and_read(browser: Browser, instance: Instance) -> None:
    async with screen(browser, instance.base, java_script_enabled=False) as plain:
        await plain.open("/access")
        assert "/ui/sign-in?after=" in plain.page.url
        await plain.page.fill("input[name=token]", "wrong")
        await plain.page.click("button[type=submit]")
        assert "not known" in await plain.page.inner_text("#wrong")
        await plain.page.fill("input[name=token]", instance.token)
        await plain.page.click("button[type=submit]")
        assert plain.page.url == f"{instance.base}/ui/access"
        words = await plain.page.inner_text("main")
        footer = await plain.page.inner_text(".side footer")
        assert ("Theme" in footer, "Times are in UTC" in footer) == (False, True)
        assert ("bea@example.com" in words, "UTC" in words or "20" in words) == (True, True)
        await plain.page.click("summary:has-text('Create a token')")
        await plain.page.fill("form[action$='/access/tokens'] input[name=name]", "<b>plain</b>")
        await plain.page.click("button:has-text('Create token')")
        assert re.fullmatch(r"carillon_[\w-]{43}", (await plain.page.inner_text("#secret")).strip())
        assert "<b>plain</b>" in await plain.page.inner_text("h1")
        await plain.page.click("button:has-text('Sign out')")
        assert plain.page.url.endswith("/ui/sign-in")


@pytest.mark.alone
async def test_a_page_tells_that_the_api_is_away_and_goes_on_when_it_is_back(
    admin: Screen, instance: Instance, axe: str
) -> None:
    await admin.show_as(WIDE, "light")
    await admin.open("")
    told, away = admin.page.locator("#refresh"), admin.page.get_by_role("alert")
    await expect(told).to_have_class("live", timeout=BACK_MS)
    await expect(away).to_have_count(0)
    await instance.stop()
    try:
        await expect(told).to_have_class("stale", timeout=TOLD_MS)
        as_of = await told.inner_text()
        await expect(away).to_have_text(f"Carillon does not answer. This page is {as_of}.")
        await expect(admin.page.locator("#inside")).to_have_css("filter", "grayscale(1)")
        assert await admin.find_barriers(axe) == []
    finally:
        await instance.start()
    await expect(told).to_have_class("live", timeout=BACK_MS)
    await expect(away).to_have_count(0)
    assert all("ERR_CONNECTION" in fault or "Failed to fetch" in fault for fault in admin.take_faults())


async def test_a_page_tells_that_the_api_hangs(admin: Screen) -> None:
    async def hang(route: Route) -> None:
        if "hx-request" not in route.request.headers:
            await route.continue_()

    told = admin.page.locator("#refresh")
    await admin.page.route("**/ui/processes*", hang)
    await admin.open("/processes")
    await expect(told).to_have_class("stale", timeout=TOLD_MS)  # htmx itself waits a minute
    await admin.page.unroute_all()
    await expect(told).to_have_class("live", timeout=BACK_MS)
    admin.take_faults()


async def test_an_answer_that_is_no_page_replaces_none(admin: Screen) -> None:
    async def answer(route: Route) -> None:
        if "hx-request" in route.request.headers:
            await route.fulfill(status=200, content_type="text/html", body="<h1>Sign in to the proxy</h1>")
        else:
            await route.continue_()

    told = admin.page.locator("#refresh")
    await admin.page.route("**/ui/processes*", answer)
    await admin.open("/processes")
    await expect(told).to_have_class("stale", timeout=TOLD_MS)
    await expect(admin.page.locator("#inside h1")).to_have_text("Processes")
    await admin.page.unroute_all()
    await expect(told).to_have_class("live", timeout=BACK_MS)
    assert admin.take_faults() == []


async def test_new_entries_of_a_list_do_not_move_it(admin: Screen, instance: Instance) -> None:
    house, page = instance.house, admin.page
    app_id = await house.app_with_template()
    await _make_jobs(house, app_id, 1)
    await admin.open(f"/jobs?app={app_id}")
    rows, link = page.locator("tbody[data-newest] tr"), page.locator("#newer a")
    first = await rows.first.locator("a.row").get_attribute("href")
    await _make_jobs(house, app_id, 2)
    await expect(link).to_have_text("2 newer")
    await expect(rows).to_have_count(1)
    await _make_jobs(house, app_id, 60)
    await expect(link).to_have_text("50+ newer")
    assert [await rows.first.locator("a.row").get_attribute("href"), await rows.count()] == [first, 1]
    await link.click()
    await expect(rows).to_have_count(50)
    await expect(link).to_have_count(0)
    assert admin.take_faults() == []


async def _make_jobs(house: House, app_id: str, count: int) -> None:
    for _ in range(count):
        house.clock.advance(1)
        made = await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})
        assert made.status == 201, made.body


async def test_a_page_that_nothing_changes_stays_as_it_is(admin: Screen, instance: Instance) -> None:
    await admin.open("/processes")
    await admin.page.evaluate("window.kept = document.getElementById('inside').firstElementChild")
    async with admin.page.expect_response(lambda answer: answer.status in {200, 204}):
        pass
    assert await admin.page.evaluate("window.kept.isConnected")
    await instance.house.store.sessions._sessions.delete_many({})
    await admin.page.wait_for_url(re.compile(r"/ui/sign-in\?after=/ui/processes$"))
