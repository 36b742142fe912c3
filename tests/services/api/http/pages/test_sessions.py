"""Who may look at pages: signing in, what a session opens, and when it ends."""

import asyncio
from datetime import timedelta

import pytest

from services.api.app import Application
from shared.accounts.removal import LASTS, make_sign_in_link
from shared.accounts.rules.callers import IDLE, LONGEST, secret_digest
from shared.core.instants import format_instant
from shared.runtime.settings import ApiSettings
from tests.services.api.client import ADMIN, PROXY, Client
from tests.services.api.conftest import ROOT_KEY, House
from tests.services.api.http.pages.browser import HERE, Browser, fields_of, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def issue(house: House, **fields: object) -> tuple[str, str]:
    """The id and the secret of a new admin's token."""
    made = await house.admin.post("/tokens", {"name": "browser", "isAdmin": True} | fields)
    assert made.status == 201, made.body
    return made.json["id"], made.json["token"]


async def signed_in(house: House, app: Application | None = None, **fields: object) -> tuple[Browser, str]:
    """A browser that is signed in, and the id of the token that it showed."""
    token_id, secret = await issue(house, **fields)
    browser = Browser(app or house.admin.app)
    assert (await browser.sign_in(secret)).status == 303
    return browser, token_id


async def is_open(browser: Browser) -> bool:
    status = (await browser.get("")).status
    assert status in {200, 303}
    return status == 200


async def test_a_stranger_signs_in_and_comes_to_where_they_wanted(house: House) -> None:
    _, secret = await issue(house)
    browser = Browser(house.admin.app)
    sent = await browser.get("/nothing/%E6%97%A5?a=1&b=%2F")
    assert sent.status == 303
    form = await Browser(house.admin.app).get(sent.headers["location"].removeprefix("/ui"))
    assert form.status == 200
    entered = await browser.sign_in(secret, fields_of(form)["after"])
    assert (entered.status, entered.headers["location"]) == (303, "/ui/nothing/%E6%97%A5?a=1&b=%2F")
    assert (await browser.get("/nothing")).status == 404
    assert (await Browser(house.admin.app).get("")).headers["location"] == "/ui/sign-in"


@pytest.mark.parametrize(
    "after",
    [
        "//evil.example", "/ui//evil.example", "https://evil.example", "/ui/\\evil.example", "\\\\evil.example",
        "/ui/welcome?key=of-mallory",
        "/uievil", "/ui/sign-out", "javascript:alert(1)", "/ui/\r\nset-cookie: a=b", "/tokens", "/ui/日",
    ],
)  # fmt: skip
async def test_nobody_is_sent_outside(house: House, after: str) -> None:
    _, secret = await issue(house)
    entered = await Browser(house.admin.app).sign_in(secret, after)
    assert (entered.status, entered.headers["location"]) == (303, "/ui")


async def test_a_wrong_token_is_refused_without_a_hint(house: House) -> None:
    bus = (await house.admin.client(ROOT_KEY).post("/api_tokens", {"name": "listener"})).json["token"]
    answers = set()
    for shown in ("wrong", "", bus, "carillon_" + "a" * 43):
        browser = Browser(house.admin.app)
        reply = await browser.sign_in(shown)
        assert (reply.status, "set-cookie" in reply.headers) == (401, False)
        assert shown not in fields_of(reply).values() or not shown
        answers.add(text_of(reply))
    assert len(answers) == 1


async def test_a_cookie_is_kept_from_scripts_and_from_other_sites(house: House) -> None:
    _, secret = await issue(house)
    plain = await Browser(house.admin.app).sign_in(secret)
    name, *also = plain.headers["set-cookie"].split("; ")
    assert name.startswith("carillon=")
    assert also == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Lax"]
    public = "https://carillon.example.com/push"
    behind = house.build(ApiSettings(first_admin=ADMIN, public_url=public))
    browser = Browser(behind)
    secure = await browser.sign_in(secret)
    assert secure.headers["location"] == "/push/ui"
    name, *also = secure.headers["set-cookie"].split("; ")
    assert name.startswith("__Host-carillon=")
    assert also == ["Path=/", "Max-Age=43200", "HttpOnly", "SameSite=Lax", "Secure"]
    assert await is_open(browser)
    browser.cookie = browser.cookie.removeprefix("__Host-")
    assert not await is_open(browser)


async def test_a_session_ends_with_its_token(house: House) -> None:
    soon = format_instant(house.clock.now() + timedelta(minutes=5))
    revoked, revoked_id = await signed_in(house)
    rotated, rotated_id = await signed_in(house)
    expiring, _ = await signed_in(house, expiresAt=soon)
    for browser in (revoked, rotated, expiring):
        assert await is_open(browser)
    assert (await house.admin.delete(f"/tokens/{revoked_id}")).status == 204
    assert (await house.admin.post(f"/tokens/{rotated_id}/rotate")).status == 200
    house.clock.advance(300)
    for browser in (revoked, rotated, expiring):
        assert not await is_open(browser)


async def test_a_session_ends_after_an_hour_without_use_and_after_twelve_with(house: House) -> None:
    idle, _ = await signed_in(house)
    used, _ = await signed_in(house)
    house.clock.advance(IDLE.total_seconds() - 1)
    assert await is_open(used)
    house.clock.advance(1)
    assert not await is_open(idle)
    for _ in range(int(LONGEST / IDLE) * 2 - 3):
        house.clock.advance(IDLE.total_seconds() / 2)
        assert await is_open(used)
    house.clock.advance(IDLE.total_seconds() / 2)
    assert not await is_open(used)


async def test_a_page_that_asks_for_itself_keeps_no_session_that_nobody_uses(house: House) -> None:
    left, read = (await signed_in(house))[0], (await signed_in(house))[0]
    for _ in range(3):
        house.clock.advance(IDLE.total_seconds() / 3)
        await left.get("", hx_request="true")
        assert (await read.get("", hx_request="true", x_used="1")).status in {200, 204}
    assert not await is_open(left)
    assert await is_open(read)


async def test_a_browser_has_one_session(house: House) -> None:
    browser, _ = await signed_in(house)
    first = Browser(house.admin.app, cookie=browser.cookie)
    _, secret = await issue(house)
    assert (await browser.sign_in("wrong")).status == 401
    assert await is_open(first)
    assert (await browser.sign_in(secret)).status == 303
    assert not await is_open(first)
    assert await is_open(browser)


async def test_a_dead_session_does_not_hide_whom_a_proxy_names(house: House) -> None:
    browser, token_id = await signed_in(house)
    assert (await house.admin.delete(f"/tokens/{token_id}")).status == 204
    named = Browser(house.admin.app, cookie=browser.cookie, headers={"x-forwarded-email": ADMIN}, peer=PROXY)
    assert ADMIN in text_of(await named.get(""))
    assert not await is_open(browser)


async def test_a_link_opened_twice_at_once_serves_once(house: House) -> None:
    key = await make_sign_in_link(house.store, ADMIN, house.clock.now())
    browsers = [Browser(house.admin.app) for _ in range(8)]
    replies = await asyncio.gather(*(browser.get(f"/welcome?key={key}") for browser in browsers))
    assert sorted(reply.status for reply in replies) == [303, *[401] * 7]
    assert sum(bool(browser.cookie) for browser in browsers) == 1


async def test_nobody_chooses_another_ones_session(house: House) -> None:
    _, secret = await issue(house)
    browser = Browser(house.admin.app, cookie="carillon=chosen-by-mallory")
    assert not await is_open(browser)
    await browser.sign_in(secret)
    first = browser.cookie
    assert "chosen" not in first
    browser.cookie = ""
    await browser.sign_in(secret)
    assert browser.cookie != first
    # A neighbour's subdomain may have set one of two; nobody knows which.
    assert not await is_open(Browser(house.admin.app, cookie=f"{first}; {browser.cookie}"))
    assert not await is_open(Browser(house.admin.app, cookie=f"carillon=; {first}"))
    assert await is_open(Browser(house.admin.app, cookie=f"other=1; {first}"))
    secret_of_it = first.partition("=")[2]
    digest = secret_digest(secret_of_it)
    assert list(await house.store.sessions.with_ids([secret_of_it, digest])) == [digest]


async def test_a_session_opens_pages_only_and_from_our_own_pages(house: House) -> None:
    browser, _ = await signed_in(house)
    api = Client(house.admin.app, {"cookie": browser.cookie} | HERE, "203.0.113.9")
    assert (await api.get("/tokens")).status == 401
    assert (await api.post("/tokens", {"name": "stolen"})).status == 401
    elsewhere: list[dict[str, str]] = [
        {"origin": "https://evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"accept": "*/*"},
    ]
    for headers in elsewhere:
        assert (await browser.post("/sign-out", None, **headers)).status == 403
    assert await is_open(browser)


async def test_signing_out_ends_the_session_wherever_its_cookie_is(house: House) -> None:
    browser, _ = await signed_in(house)
    copy = Browser(house.admin.app, cookie=browser.cookie)
    assert "Sign out" in text_of(await browser.get(""))
    left = await browser.post("/sign-out")
    assert (left.status, left.headers["location"]) == (303, "/ui/sign-in")
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert not await is_open(copy)


async def test_whom_a_proxy_names_needs_no_session(house: House) -> None:
    person = Browser(house.admin.app, headers={"x-forwarded-email": ADMIN}, peer=PROXY)
    page = await person.get("")
    assert (page.status, ADMIN in text_of(page)) == (200, True)
    assert "Sign out" not in text_of(page)
    assert not await is_open(Browser(house.admin.app, headers={"x-forwarded-email": ADMIN}))


async def test_a_link_signs_its_person_in_once(house: House) -> None:
    key = await make_sign_in_link(house.store, ADMIN, house.clock.now())
    browser, late = Browser(house.admin.app), Browser(house.admin.app)
    for cookie in (key, secret_digest(key)):
        assert not await is_open(Browser(house.admin.app, cookie=f"carillon={cookie}")), "a link is no session yet"
    entered = await browser.get(f"/welcome?key={key}")
    assert (entered.status, entered.headers["location"]) == (303, "/ui")
    assert ADMIN in text_of(await browser.get(""))
    assert (await late.get(f"/welcome?key={key}")).status == 401
    assert not late.cookie
    assert key not in browser.cookie


async def test_a_link_is_over_after_ten_minutes(house: House) -> None:
    key = await make_sign_in_link(house.store, ADMIN, house.clock.now() - LASTS)
    browser = Browser(house.admin.app)
    refused = await browser.get(f"/welcome?key={key}")
    assert refused.status == 401
    assert "used before, or is over" in text_of(refused)
    assert (await browser.get("/welcome")).status == 401
    assert not browser.cookie
