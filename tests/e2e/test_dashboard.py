"""What a person does with the dashboard in their first minutes, in Chromium, on real deployments: a template, a push
that they watch, one around the globe, a schedule, an account and a message, a subscription."""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from playwright.async_api import Browser, expect

from services.commands.seed import Customer, seed
from services.embedded.processes import free_port
from shared.push.rules.records import APNS
from tests.browser.screen import Screen, chromium, screen
from tests.e2e.house import House
from tests.e2e.test_bus_by_commands import ON_BUS
from tests.e2e.test_embedded import Upper, upper
from tests.services.api.client import ADMIN

pytestmark = [pytest.mark.e2e, pytest.mark.native]

__all__ = ["upper"]

DEVICES = 1_000
SOON_MS = 30_000


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


async def test_the_first_minutes_with_what_carillon_up_runs(upper: Upper, browser: Browser) -> None:
    _, house = await upper.start()
    await spend_first_minutes(browser, house.api, house.audience)


@pytest.mark.slow
async def test_the_first_minutes_with_processes_on_servers(house: House, browser: Browser) -> None:
    port = free_port()
    sandbox = {"CARILLON_PROVIDERS_SANDBOX_FILE": str(house.folder / "sandbox.ndjson")}
    await house.start("api", CARILLON_API_PORT=str(port), **ON_BUS, **sandbox)
    for service in ("worker", "scheduler", "feedback-answers", "feedback-bus"):
        await house.start(service, **ON_BUS, **sandbox)
    await spend_first_minutes(browser, f"http://127.0.0.1:{port}", house.push_database)


async def spend_first_minutes(browser: Browser, base: str, audience: str) -> None:
    as_admin = {"x-forwarded-email": ADMIN}
    async with Customer(base, as_admin) as customer:
        seeded = await seed(customer, audience, app="demo", service=APNS, count=DEVICES)
    async with httpx.AsyncClient(base_url=base, headers=as_admin) as client:
        made = await client.post("/tokens", json={"name": "a browser", "isAdmin": True})
    async with screen(browser, base) as shown:
        await shown.sign_in(made.json()["token"])
        await expect(shown.page.locator("section.verdict")).to_be_visible()
        await write_template(shown, seeded.app_id)
        await send_push(shown, seeded.app_id)
        await send_around_the_globe(shown, seeded.app_id)
        await make_schedule(shown)
        await send_message(shown, seeded.app_id)
        await subscribe(shown)
        for path in ("", "/processes", "/dead-letters", "/audit", "/settings"):
            assert await shown.open(path) == 200
        assert shown.take_faults() == []


async def press(shown: Screen, label: str) -> None:
    await shown.page.get_by_role("button", name=label, exact=True).first.click()


async def answer(shown: Screen, question: str, *, named: str = "") -> None:
    """Open a question, and say yes to it; where much is done, by a name."""
    asked = shown.page.locator("details.ask", has=shown.page.locator("summary", has_text=re.compile(f"^{question}$")))
    await asked.locator("summary").click()
    if named:
        await asked.locator("input[name=named]").fill(named)
    await asked.locator("button[type=submit]").click()


async def write_template(shown: Screen, app_id: str) -> None:
    page = shown.page
    await shown.open(f"/templates/{app_id}/new")
    await page.fill("input[name=name]", "sale")
    await page.fill("input[name=locale]", "en")
    await page.fill("textarea[name=body]", '{"alert": "Hi {{name}}, all is half price"}')
    await page.fill("textarea[name=defaults]", '{"name": "you"}')
    await expect(page.locator("main")).to_contain_text("Hi you, all is half price", timeout=SOON_MS)
    await press(shown, "Create template")
    await expect(page.locator("h1")).to_contain_text("sale")


async def preview_push(shown: Screen, app_id: str, when: str, starts_at: str = "") -> None:
    page = shown.page
    await shown.open(f"/jobs/new?app={app_id}&template=sale")
    await page.check(f"input[name=when][value={when}]")
    if starts_at:
        await page.fill("input[name=startsAt]", starts_at)
    await press(shown, "Preview")
    told = page.locator("section[aria-label=Preview]")
    await expect(told).to_contain_text("1,000")
    await expect(told).to_contain_text("Hi you, all is half price")


async def send_push(shown: Screen, app_id: str) -> None:
    """It is watched until it is done: nobody loads the page anew."""
    await preview_push(shown, app_id, "now")
    await press(shown, "Send now")
    await expect(shown.page).to_have_url(re.compile(f"/ui/jobs/{app_id}/"))
    await expect(shown.page.locator(".head .state").first).to_have_text("completed", timeout=SOON_MS)
    await expect(shown.page.locator("dl.figures").first).to_contain_text("1,000")


async def send_around_the_globe(shown: Screen, app_id: str) -> None:
    day = datetime.now(UTC) + timedelta(days=2)
    await preview_push(shown, app_id, "localized", f"{day:%Y-%m-%dT}18:00")
    await press(shown, "Create the job")
    await expect(shown.page).to_have_url(re.compile(f"/ui/groups/{app_id}/"))
    await expect(shown.page.locator("figure svg").first).to_be_visible()
    await press(shown, "Pause all")
    await expect(shown.page.locator(".head .state").first).to_have_text("paused")
    await answer(shown, "Stop all", named="demo")
    await expect(shown.page.locator(".head .state").first).to_have_text("stopped")


async def make_schedule(shown: Screen) -> None:
    page = shown.page
    await shown.open("/new-schedule")
    await page.fill("input[name=schedule_key]", "first-reminder")
    await page.check("input[name=when][value=every]")
    await page.fill("input[name=every]", "3600")
    await page.check("input[name='callback.type'][value=http]")
    await page.fill("input[name='callback.data.url']", "https://example.com/remind")
    await press(shown, "Show the next times")
    await expect(page.locator("ol.instants li").first).to_be_visible()
    await press(shown, "Create schedule")
    await expect(page.locator("h1")).to_contain_text("first-reminder")
    await answer(shown, "Pause")
    await expect(page.locator(".head .state").first).to_have_text("paused")


async def send_message(shown: Screen, app_id: str) -> None:
    page = shown.page
    await shown.open(f"/messages/{app_id}/credentials/new?kind=sandbox")
    await page.fill("input[name=name]", "mail")
    await page.fill("input[name=testRecipient]", "ana@example.com")
    await press(shown, "Send a test message and create")
    await expect(page.locator("h1")).to_contain_text("mail")
    await shown.open(f"/messages/{app_id}/send")
    await page.fill("input[name=to]", "bea@example.com")
    await page.fill("textarea[name=body]", '{"subject": "Hello", "text": "Hello Bea"}')
    await press(shown, "Send now")
    await expect(page.locator(".head .state").first).to_have_text("sent", timeout=SOON_MS)


async def subscribe(shown: Screen) -> None:
    page = shown.page
    await shown.open("/bus/new-subscription")
    await page.fill("input[name=subscription_key]", "billing")
    await page.fill("input[name=callback]", "https://billing.example.com/events")
    await page.fill("input[name=topics]", "orders")
    await press(shown, "Create subscription")
    assert await shown.open("/bus/topics/orders") == 200
    await shown.open("/bus/subscriptions/billing")
    await expect(page.locator("h1")).to_contain_text("billing")
    await answer(shown, "Pause")
    await expect(page.locator(".head .state").first).to_have_text("paused")
    await answer(shown, "Delete")
    await expect(page).to_have_url(re.compile(r"/ui/bus(\?.*)?$"))
