"""The pictures of the dashboard that its documentation shows, from a deployment that is made up: of Lumen, a shop.

`make screenshots` writes them where the documentation has them; without it they go to a folder of the test's own.
"""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from msgspec import Struct
from playwright.async_api import Browser

from services.wiring.rooms import Rooms
from shared.core.instants import ns
from tests.browser.conftest import Instance
from tests.browser.lumen import bus, clock, console, jobs, messages
from tests.browser.screen import WIDE, Screen, screen
from tests.services.api.client import Client
from tests.services.api.conftest import House, _execute
from tests.services.api.http.pages.addresses import page_routes
from tests.stack import Endpoints

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native, pytest.mark.slow]

LARGEST, LARGEST_TOGETHER = 128 * 1024, 3_200_000
_NAVIGATION, _TALL = 208, 1_600
_WHOLE_SECTIONS = """cut => {
    const last = (parts, below) => Math.max(0, ...[...document.querySelectorAll(parts)]
        .map((part) => part.getBoundingClientRect()).filter((box) => box.height)
        .map((box) => Math.ceil(box.bottom) + below).filter((end) => end <= cut));
    const whole = last("#inside, #inside > *, #inside > form > *", 16);
    return whole > cut / 2 || last("#inside", 16) ? whole : last("#inside :is(tr, li, dd, label, .fields)", 1);
}"""
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
    "CREATE INDEX ON lumen_apns (user_id)",
    """INSERT INTO lumen_apns SELECT 'u' || n / 2, 't' || n, (ARRAY['en', 'pt', 'en', 'es', 'fr'])[1 + n % 5], 'US',
        (ARRAY['+0000', '+0100', '-0500', '-0300', '+0900', '+0000', '-0500'])[1 + n % 7], n
        FROM generate_series(1, 20000) n""",
)


class Shot(Struct, frozen=True):
    """A page by the name of its picture, at an address of Lumen's. One with a `height` is shown with the navigation, as
    far as this many pixels from the top; of the others the picture shows whole sections, or rows, as far as `cut`."""

    name: str
    address: str
    height: int = 0
    cut: int = 640


_BY_ROUTE = {
    "/": Shot("overview", "", 796),
    "/find": Shot("find", "/find?q={recipient}"),
    "/jobs": Shot("jobs", "/jobs"),
    "/jobs/{app_id:str}/{job_id:str}": Shot("job", "/jobs/{app}/{job}", 692),
    "/groups/{app_id:str}/{group_id:str}": Shot("globe", "/groups/{app}/{group}", 772),
    "/jobs/new": Shot("new-job", "/jobs/new?app={app}&template=spring-launch", 816),
    "/templates": Shot("templates", "/templates?app={app}"),
    "/templates/{app_id:str}/named": Shot("template", "/templates/{app}/named?name=spring-launch"),
    "/templates/{app_id:str}/new": Shot("new-template", "/templates/{app}/new"),
    "/templates/{app_id:str}/edit/{template_id:str}": Shot("edit-template", "/templates/{app}/edit/{template}"),
    "/apps": Shot("apps", "/apps"),
    "/apps/new": Shot("new-app", "/apps/new"),
    "/apps/{app_id:str}": Shot("app", "/apps/{app}"),
    "/schedules": Shot("schedules", "/schedules", 790),
    "/new-schedule": Shot("new-schedule", "/new-schedule"),
    "/schedules/{key:str}": Shot("schedule", "/schedules/{schedule}?namespace={namespace}"),
    "/schedules/{key:str}/edit": Shot("edit-schedule", "/schedules/{schedule}/edit?namespace={namespace}"),
    "/messages": Shot("messages", "/messages?app={app}", 740),
    "/messages/{app_id:str}/credentials/new": Shot("new-account", "/messages/{app}/credentials/new?kind=smtp"),
    "/messages/{app_id:str}/credentials/{credential_id:str}": Shot("account", "/messages/{app}/credentials/{account}"),
    "/messages/{app_id:str}/credentials/{credential_id:str}/change": Shot(
        "edit-account", "/messages/{app}/credentials/{account}/change"
    ),
    "/messages/{app_id:str}/credentials/{credential_id:str}/secret": Shot(
        "account-secret", "/messages/{app}/credentials/{account}/secret"
    ),
    "/messages/jobs/{app_id:str}/{job_id:str}": Shot("job-messages", "/messages/jobs/{app}/{message_job}"),
    "/messages/{app_id:str}/messages/{message_id:str}": Shot("message", "/messages/{app}/messages/{message}"),
    "/messages/{app_id:str}/recipients": Shot("recipient", "/messages/{app}/recipients?address={recipient}"),
    "/messages/{app_id:str}/send": Shot("send-message", "/messages/{app}/send"),
    "/bus": Shot("bus", "/bus", cut=1_100),
    "/bus/new-subscription": Shot("new-subscription", "/bus/new-subscription"),
    "/bus/subscriptions/{key:str}": Shot("subscription", "/bus/subscriptions/{subscription}", 741),
    "/bus/subscriptions/{key:str}/edit": Shot("edit-subscription", "/bus/subscriptions/{subscription}/edit"),
    "/bus/subscriptions/{key:str}/deliveries": Shot("deliveries", "/bus/subscriptions/{subscription}/deliveries"),
    "/bus/deliveries/{delivery_id:str}": Shot("delivery", "/bus/deliveries/{delivery}"),
    "/bus/subscriptions/{key:str}/replays": Shot("replays", "/bus/subscriptions/{replayed}/replays"),
    "/bus/topics": Shot("topics", "/bus/topics"),
    "/bus/topics/{topic:str}": Shot("topic", "/bus/topics/{topic}", cut=800),
    "/bus/dead-letters": Shot("dead-deliveries", "/bus/dead-letters"),
    "/bus/dead-letters/{letter_id:str}": Shot("dead-delivery", "/bus/dead-letters/{bus_letter}"),
    "/dead-letters": Shot("dead-letters", "/dead-letters?namespace={namespace}", 816),
    "/dead-letters/{letter_id:str}": Shot("dead-letter", "/dead-letters/{letter}?namespace={namespace}"),
    "/bulk-actions": Shot("bulk-actions", "/bulk-actions"),
    "/bulk-actions/new": Shot(
        "new-bulk-action",
        "/bulk-actions/new?act=dead-letter.retry&namespace={namespace}&key={schedule}",
    ),
    "/bulk-actions/{action_id:str}": Shot("bulk-action", "/bulk-actions/{action}"),
    "/processes": Shot("processes", "/processes"),
    "/access": Shot("access", "/access", cut=900),
    "/access/users/{user_id:str}": Shot("user", "/access/users/{user}"),
    "/audit": Shot("audit", "/audit"),
    "/settings": Shot("settings", "/settings"),
}


@dataclass
class Lumen:
    """A deployment that has much to show."""

    instance: Instance
    made: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lumen(house: House, stack: Endpoints) -> AsyncIterator[Lumen]:
    made = await house.admin.post("/tokens", {"name": "bea", "isAdmin": True})
    client, now = house.admin.service(made.json["token"]), await house.store.now()
    namespace = made.json["namespace"]
    house.clock._ns = ns(now)  # what the API dates by it lies beside what the database dates
    app_id = await house.app("Lumen")
    described = {"bundle_id": "com.lumen.shop", "created_by": "bea@lumen.example"}
    await house.store.apps._apps.update_one({"_id": app_id}, {"$set": described})
    template_id = await _add_templates(client, app_id)
    await _add_devices(house, stack)
    made_of = {"app": app_id, "namespace": namespace, "recipient": quote(messages.ANA)}
    made_of |= {"template": template_id, "schedule": clock.REPORTS, "topic": bus.TOPIC}
    made_of |= {"subscription": bus.TROUBLED, "replayed": bus.WITH_LETTERS}
    made_of["job"], made_of["group"] = await jobs.add_jobs(house.store, app_id, now)
    accounts = await messages.add_accounts(house.store, app_id, now)
    made_of["account"], made_of["message_job"], made_of["message"] = accounts
    await messages.add_suppressions(client, app_id)
    await clock.add_schedules(client, now)
    await clock.add_outcomes(house.store, namespace, now)
    made_of["letter"] = await clock.add_dead_letters(house.store, namespace, now)
    made_of["delivery"], made_of["bus_letter"] = await bus.add_subscriptions(client, house.store, namespace, now)
    made_of["user"] = await console.add_people(client, app_id)
    made_of["action"] = await console.add_actions(house.store, namespace, now)
    await console.add_hour(house.store, now)
    await console.tell_of_processes(house.store, now)
    instance = Instance(house, 0, made.json["token"])
    await instance.start()
    yield Lumen(instance, made_of)
    await instance.stop()


async def _add_templates(client: Client, app_id: str) -> str:
    """Have them made: the id of the first."""
    ids = []
    for name, texts in _TEMPLATES.items():
        for locale, (title, body) in texts.items():
            template = {"name": name, "locale": locale, "body": {"alert": {"title": title, "body": body}}}
            made = await client.post(
                f"/apps/{app_id}/templates", template | {"defaults": {"name": "Ana", "order": "17"}}
            )
            assert made.status == 201, made.body
            ids.append(str(made.json["id"]))
    return ids[0]


async def _add_devices(house: House, stack: Endpoints) -> None:
    """Those of whom a new job is to be previewed: the house has databases of the same name in both servers."""
    await _execute(f"{stack.postgres_url.rpartition('/')[0]}/{house.store._database.name}", *_DEVICES)


async def test_every_page_has_a_picture(house: House) -> None:
    assert {route.path for route in page_routes(Rooms(house.servers))} == set(_BY_ROUTE)


async def test_the_figures_of_a_ledger_agree(lumen: Lumen) -> None:
    path = "/apps/{app}/jobs/{message_job}?exact=true".format_map(lumen.made)
    shown = (await lumen.instance.house.admin.get(path)).json
    counts = shown["messages"]
    assert counts["failed"] + counts["invalid"] == sum(shown["reasons"].values())


async def test_pictures_are_small_and_show_no_fault(lumen: Lumen, browser: Browser, tmp_path: Path) -> None:
    folder = Path(os.environ.get("CARILLON_PICTURES") or tmp_path)
    folder.mkdir(exist_ok=True)
    house = lumen.instance.house
    async with screen(browser, lumen.instance.base, timezone_id="UTC", locale="en-GB") as shown:
        await shown.sign_in(lumen.instance.token)
        for shot in _BY_ROUTE.values():
            await shown.show_as(WIDE, "light")
            await console.tell_of_processes(house.store, await house.store.now())
            assert await shown.open(shot.address.format_map(lumen.made)) == 200, shot.name
            assert "could not be read" not in await shown.page.inner_text("main"), shot.name
            if shot.name == "new-job":
                await _foresee(shown)
            await _take(shown, folder / f"{shot.name}.png", shot.height, shot.cut)
        assert shown.take_faults() == []
    sizes = {path.name: path.stat().st_size for path in folder.glob("*.png")}
    assert set(sizes) == {f"{shot.name}.png" for shot in _BY_ROUTE.values()}
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}
    assert sum(sizes.values()) <= LARGEST_TOGETHER


async def _take(shown: Screen, target: Path, height: int, cut: int) -> None:
    assert await shown.find_overflow() <= 0, target.name
    if height:
        await shown.page.set_viewport_size({"width": WIDE, "height": height})
        await shown.page.screenshot(path=target, animations="disabled")
        return
    await shown.page.set_viewport_size({"width": WIDE, "height": _TALL})
    bottom = await shown.page.evaluate(_WHOLE_SECTIONS, cut)
    clip: Any = {"x": _NAVIGATION, "y": 0, "width": WIDE - _NAVIGATION, "height": bottom}
    await shown.page.screenshot(path=target, animations="disabled", clip=clip)


async def _foresee(shown: Screen) -> None:
    """Type a job, and have it previewed."""
    await shown.page.fill("textarea[name=context]", '{"name": "Ana"}')
    await shown.page.fill("input[name=controlGroup]", "10")
    await shown.page.locator("input[name=filter-column]").first.fill("locale")
    await shown.page.locator("input[name=filter-value]").first.fill("en,pt")
    await shown.page.click("button:has-text('Preview')")
    await shown.page.wait_for_selector("section[aria-label=Preview]")
