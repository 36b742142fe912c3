"""The main way through the dashboard in Chromium, from the sign-in to the sign-out. test_pages.py has every page."""

import re

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import Instance
from tests.browser.lumen.console import tell_of_processes
from tests.browser.screen import Screen, screen

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


@pytest.mark.proof
async def test_a_person_signs_in_sends_a_push_finds_it_and_signs_out(
    browser: Browser, instance: Instance, axe: str
) -> None:
    store = instance.house.store
    await instance.house.app("another one")
    await tell_of_processes(store, await store.now())
    async with screen(browser, instance.base) as shown:
        await shown.sign_in(instance.token)
        await expect(shown.page.locator("section.verdict")).to_contain_text("All is well.")
        assert await shown.find_barriers(axe) == []
        await _send_push(shown)
        assert await shown.find_barriers(axe) == []
        job = shown.page.url
        await _find(shown, job.rpartition("/")[2].partition("?")[0])
        await expect(shown.page).to_have_url(job.partition("?")[0])
        await shown.page.get_by_role("button", name="Sign out").click()
        await expect(shown.page).to_have_url(re.compile("/ui/sign-in$"))
        assert await shown.open("/jobs") == 200
        await expect(shown.page).to_have_url(re.compile("/ui/sign-in"))
        assert shown.take_faults() == []


async def _send_push(shown: Screen) -> None:
    """Make a job in the wizard, and come to its page."""
    page = shown.page
    await page.get_by_role("link", name="Jobs", exact=True).click()
    await page.get_by_role("link", name="New job").click()
    await page.get_by_label("App").select_option("game")
    await page.get_by_role("button", name="Continue").click()
    await page.get_by_role("checkbox", name="like").check()
    await page.get_by_role("button", name="Preview", exact=True).click()
    preview = page.locator("section[aria-label=Preview]")
    await expect(preview).to_contain_text("Ana likes it")
    await expect(preview).to_contain_text("sends to 10 devices")
    await preview.get_by_role("button", name="Send now").click()
    await expect(page.locator("h1")).to_have_text("like")
    await expect(page.get_by_role("status").filter(has_text="Created.")).to_be_visible()


async def _find(shown: Screen, wanted: str) -> None:
    """Type it into the box of Find, and go to what is found."""
    page = shown.page
    await page.get_by_role("link", name="Find", exact=True).click()
    await page.get_by_role("searchbox").fill(wanted)
    await page.keyboard.press("Enter")
    await page.locator("main").get_by_role("link", name=wanted).click()
