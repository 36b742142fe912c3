"""The pictures of the dashboard that its documentation shows, from a deployment that is made up: of Lumen, a shop.

`make screenshots` writes them where the documentation has them; without it they go to a folder of the test's own.
"""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec import Struct
from playwright.async_api import Browser

from tests.browser.conftest import Instance
from tests.browser.lumen import bus, clock, console, jobs, messages
from tests.browser.screen import WIDE, Screen, screen
from tests.services.api.client import Client
from tests.services.api.conftest import House, _execute
from tests.stack import Endpoints

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native, pytest.mark.slow]

LARGEST, LARGEST_TOGETHER = 120 * 1024, 1_000_000
_TEMPLATES = {
    "spring-launch": {
        "en": ("Spring is here", "{{name}}, the new collection is in your size."),
        "pt": ("A primavera chegou", "{{name}}, a nova coleção tem o seu tamanho."),
    },
    "order-shipped": {"en": ("On its way", "Your order {{order}} left our warehouse.")},
    "price-drop": {"en": ("Now for less", "Something on your list costs less today.")},
    "weekend-offer": {"en": ("Only this weekend", "Free delivery until Sunday night.")},
}
_DEVICES = (
    "CREATE TABLE lumen_apns (user_id text, token text, locale text, region text, tz text, seq_id bigint)",
    "CREATE INDEX ON lumen_apns (seq_id)",
    """INSERT INTO lumen_apns SELECT 'u' || n / 2, 't' || n, (ARRAY['en', 'pt', 'en', 'es', 'fr'])[1 + n % 5], 'US',
        (ARRAY['+0000', '+0100', '-0500', '-0300', '+0900', '+0000', '-0500'])[1 + n % 7], n
        FROM generate_series(1, 20000) n""",
)


class Shot(Struct, frozen=True):
    """A page, and how much of it its picture shows, in pixels from the top: as far as a whole section goes."""

    path: str
    height: int


@dataclass
class Lumen:
    """A deployment that has much to show."""

    instance: Instance
    namespace: str
    app_id: str
    job_id: str
    group_id: str

    @property
    def shots(self) -> dict[str, Shot]:
        """What is pictured, by the names of the pictures."""
        mine = f"?namespace={self.namespace}"
        return {
            "overview": Shot("", 796),
            "job": Shot(f"/jobs/{self.app_id}/{self.job_id}", 692),
            "globe": Shot(f"/groups/{self.app_id}/{self.group_id}", 772),
            "messages": Shot(f"/messages?app={self.app_id}", 740),
            "schedules": Shot("/schedules", 790),
            "dead-letters": Shot(f"/dead-letters{mine}", 816),
            "subscription": Shot(f"/bus/subscriptions/{bus.TROUBLED}", 741),
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lumen(house: House, stack: Endpoints) -> AsyncIterator[Lumen]:
    made = await house.admin.post("/tokens", {"name": "bea", "isAdmin": True})
    client, now = house.admin.service(made.json["token"]), await house.store.now()
    namespace = made.json["namespace"]
    app_id = await house.app("Lumen")
    await _add_templates(client, app_id)
    await _add_devices(house, stack)
    job_id, group_id = await jobs.add_jobs(house.store, app_id, now)
    await messages.add_accounts(house.store, app_id, now)
    await clock.add_schedules(client, now)
    await clock.add_dead_letters(house.store, namespace, now)
    await bus.add_subscriptions(client, house.store, namespace, now)
    await console.add_hour(house.store, now)
    await console.tell_of_processes(house.store, now)
    instance = Instance(house, 0, made.json["token"])
    await instance.start()
    yield Lumen(instance, namespace, app_id, job_id, group_id)
    await instance.stop()


async def _add_templates(client: Client, app_id: str) -> None:
    for name, texts in _TEMPLATES.items():
        for locale, (title, body) in texts.items():
            template = {"name": name, "locale": locale, "body": {"alert": {"title": title, "body": body}}}
            made = await client.post(
                f"/apps/{app_id}/templates", template | {"defaults": {"name": "Ana", "order": "17"}}
            )
            assert made.status == 201, made.body


async def _add_devices(house: House, stack: Endpoints) -> None:
    """Those of whom a new job is to be previewed: the house has databases of the same name in both servers."""
    await _execute(f"{stack.postgres_url.rpartition('/')[0]}/{house.store._database.name}", *_DEVICES)


async def test_pictures_are_small_and_show_no_fault(lumen: Lumen, browser: Browser, tmp_path: Path) -> None:
    folder = Path(os.environ.get("CARILLON_PICTURES") or tmp_path)
    folder.mkdir(exist_ok=True)
    async with screen(browser, lumen.instance.base, timezone_id="UTC", locale="en-GB") as shown:
        await shown.sign_in(lumen.instance.token)
        await shown.show_as(WIDE, "light")
        for name, shot in lumen.shots.items():
            assert await shown.open(shot.path) == 200, name
            assert "could not be read" not in await shown.page.inner_text("main"), name
            await _take(shown, folder / f"{name}.png", shot.height)
        await _foresee(shown, lumen.app_id)
        await _take(shown, folder / "new-job.png", 816)
        assert shown.take_faults() == []
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.png")}
    assert len(sizes) == len(lumen.shots) + 1
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}
    assert sum(sizes.values()) <= LARGEST_TOGETHER


async def _take(shown: Screen, target: Path, height: int) -> None:
    assert await shown.find_overflow() <= 0, target.name
    await shown.page.set_viewport_size({"width": WIDE, "height": height})
    await shown.page.screenshot(path=target, animations="disabled")


async def _foresee(shown: Screen, app_id: str) -> None:
    """Type a job, and have it previewed."""
    await shown.open(f"/jobs/new?app={app_id}&template=spring-launch")
    await shown.page.fill("textarea[name=context]", '{"name": "Ana"}')
    await shown.page.fill("input[name=controlGroup]", "10")
    await shown.page.locator("input[name=filter-column]").first.fill("locale")
    await shown.page.locator("input[name=filter-value]").first.fill("en,pt")
    await shown.page.click("button:has-text('Preview')")
    await shown.page.wait_for_selector("section[aria-label=Preview]")
