"""The frame of every page: headers, refreshes, problems and sentences."""

import gc
import warnings

import pytest

from services.api.http.pages.html import POLICY
from services.api.http.pages.routes import SAID
from shared.runtime.settings import ApiSettings
from shared.store import Store
from tests.services.api.client import ADMIN, PROXY, Reply
from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import STRANGER, Browser, tags_of, text_of
from tests.services.api.http.pages.test_sessions import signed_in

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def admin(house: House) -> Browser:
    return Browser(house.admin.app, headers={"x-forwarded-email": ADMIN}, peer=PROXY)


def digest_in(reply: Reply) -> str:
    return next(each["data-digest"] or "" for each in tags_of(reply, "div") if "data-digest" in each)


async def test_every_page_says_what_it_may_load_and_that_nobody_keeps_it(house: House, admin: Browser) -> None:
    stranger = Browser(house.admin.app)
    for reply in (await admin.get(""), await admin.get("/nothing"), await stranger.get("/sign-in")):
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert reply.headers["content-security-policy"] == POLICY
        assert (reply.headers["cache-control"], reply.headers["x-frame-options"]) == ("no-store", "DENY")
        linked = tags_of(reply, "link") + tags_of(reply, "script") + tags_of(reply, "img")
        for path in {each.get("href") or each.get("src") or "" for each in linked}:
            file = await stranger.get(path.removeprefix("/ui"))
            assert (file.status, file.headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    assert "unsafe" not in POLICY


async def test_the_navigation_names_its_groups_and_leaves_bulk_actions_to_the_lists(admin: Browser) -> None:
    page = text_of(await admin.get("/bulk-actions"))
    groups = (
        "Menu Overview Find Send Jobs Templates Accounts Schedule Schedules Calendars Bus Subscriptions Topics "
        "Problems Dead letters Admin Apps Processes Access Audit Settings"
    )
    assert groups in page
    for path in ("/jobs", "/schedules"):
        assert "/ui/bulk-actions" in {each.get("href") for each in tags_of(await admin.get(path), "a")}


async def test_a_refresh_gets_the_inside_and_nothing_where_that_is_shown(admin: Browser) -> None:
    whole = await admin.get("/nothing")
    inside = await admin.get("/nothing", hx_request="true")
    assert (digest_in(whole), len(tags_of(inside, "html"))) == (digest_in(inside), 0)
    assert inside.body in whole.body
    again = await admin.get("/nothing", hx_request="true", x_shown=digest_in(whole))
    assert (again.status, again.body) == (204, b"")
    assert (await admin.get("/nothing", hx_request="true", x_shown="0" * 16)).status == 404
    assert (await admin.get("/nothing", x_shown=digest_in(whole))).status == 404


async def test_a_refresh_after_the_end_of_a_session_leads_to_the_door(house: House) -> None:
    browser, _ = await signed_in(house)
    await browser.post("/sign-out")
    reply = await browser.get("/nothing?a=1", hx_request="true")
    assert (reply.status, reply.body) == (200, b"")
    assert reply.headers["hx-redirect"] == "/ui/sign-in?after=/ui/nothing%3Fa%3D1"


async def test_an_address_without_a_page_is_a_page_that_says_so(admin: Browser) -> None:
    for path in ("/nothing", "/%3Cscript%3E", "/files", "/messages/new", "/bus/nothing/at/all"):
        reply = await admin.get(path)
        assert (path, reply.status) == (path, 404)
        assert "not found" in text_of(reply).lower()
    assert (await admin.get("/files/htmx.js")).status == 404


async def test_what_is_gone_leads_to_the_list_of_its_kind(house: House, admin: Browser) -> None:
    page = await admin.get(f"/jobs/{await house.app()}/00000000-0000-4000-8000-000000000000")
    assert (page.status, "Go to Jobs" in text_of(page)) == (404, True)
    assert "Go to Jobs" not in text_of(await admin.get("/nothing"))


async def test_a_role_that_is_missing_is_named(house: House) -> None:
    browser, _ = await signed_in(house, isAdmin=False)
    page = await browser.get("/processes")
    assert (page.status, "needs the role viewer over *" in text_of(page)) == (403, True)
    page = await browser.get(f"/apps/{await house.app()}")
    assert (page.status, "need the role viewer for this app" in text_of(page)) == (403, True)


async def test_an_address_chooses_among_sentences_and_writes_none(admin: Browser) -> None:
    for said in ("<b>Paid</b>", "You have been hacked", "saved{0}"):
        reply = await admin.get(f"?said={said.replace(' ', '+')}")
        assert reply.status == 200
        assert "hacked" not in text_of(reply)
        assert not tags_of(reply, "b")
    for count in ("7", "%3Cb%3E", "9" * 6_000, "²"):
        reply = await admin.get(f"?said=saved&count={count}")
        assert (reply.status, SAID["saved"] in text_of(reply)) == (200, True)


async def test_a_page_says_that_a_server_is_away(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.store.CONNECT_MS", 50)
    away = Store.open("mongodb://127.0.0.1:1/none", timeout_seconds=0.2)
    app = house.build(ApiSettings(first_admin=ADMIN), store=away)
    for browser in (
        Browser(app, headers={"x-forwarded-email": ADMIN}, peer=PROXY),
        Browser(app, cookie="carillon=unknown", peer=STRANGER),
    ):
        reply = await browser.get("")
        assert (reply.status, "who you are" in text_of(reply)) == (503, True)
        assert reply.headers["content-security-policy"] == POLICY
    reply = await Browser(app).sign_in("carillon_x")
    assert (reply.status, "Signing in is not possible now" in text_of(reply)) == (503, True)
    await away.close()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # PyMongo drops the socket that its monitor was connecting when it was closed
