"""What somebody hostile sends to pages: each answers as a page, tells nothing, and leads nowhere else."""

import gc
import gzip
import json
import threading
import warnings
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from services.api.app import Application
from services.api.http.pages import html
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.visits import ApiProblem, Visit
from shared.runtime.settings import ApiSettings
from shared.store import Store
from tests.services.api.client import ADMIN, PROXY
from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import Browser, tags_of, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = ['"><script>alert(1)<script>', "a?b#c%2F&d", "..;", "' onload='x", "日\N{FIRE}", "{{7*7}}{0}"]


class MadePages(PageSet):
    """Pages that do what their visitors say."""

    @PageRoute("/made/{name:str}", template="frame/problem.html", refresh_seconds=1)
    async def show_made(self, visit: Visit) -> Values:
        name, size = visit.path("name"), int(visit.query("size") or 0)
        if name == "broken":
            raise ValueError("the password is hunter2")
        return {"title": name, "problem": ApiProblem(HTTPStatus.OK, name), "remedy": "x" * size}

    @FormRoute("/made/{name:str}", page="show_made")
    async def go_where_typed(self, visit: Visit) -> Moved:
        return Moved(visit.form["to"], "saved")

    @FormRoute("/made/{name:str}/retry", page="show_made")
    async def tell_act(self, visit: Visit) -> Moved:
        return Moved(f"/made/{visit.act}")

    @FormRoute("/made/{name:str}/user", page="show_made")
    async def add_user(self, visit: Visit) -> Moved:
        await visit.send("POST", "/users", body={"email": visit.read_field("email")})
        return Moved("")

    @FormRoute("/made/{name:str}/event", page="show_made")
    async def publish(self, visit: Visit) -> Moved:
        event = {"type": "noop", "url": "https://example.com/1", "data": json.loads(visit.form["data"])}
        await visit.send("POST", "/bus/topics/{}/events", visit.path("name"), body=event)
        return Moved("")


@pytest.fixture(scope="module")
def made(house: House) -> Application:
    """The API with the made pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("services.wiring.api.FindPages", MadePages)
        return house.build()


@pytest.fixture
def admin(made: Application) -> Browser:
    return Browser(made, headers={"x-forwarded-email": ADMIN}, peer=PROXY)


def quoted(name: str) -> str:
    return urlencode({"": name}).removeprefix("=").replace("+", "%20")


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_name_is_text_and_its_page_asks_for_itself(admin: Browser, name: str) -> None:
    page = await admin.get(f"/made/{quoted(name)}?{urlencode({name: name})}")
    assert (page.status, name.rsplit(maxsplit=1)[-1] in text_of(page)) == (200, True)
    assert {each["src"].split(".")[-1] for each in tags_of(page, "script") if each["src"]} == {"js"}
    assert not any(
        attribute.startswith("on") for tag in ("main", "div", "p") for each in tags_of(page, tag) for attribute in each
    )
    itself = tags_of(page, "main")[0]["hx-get"] or ""
    again = await admin.get(itself.removeprefix("/ui"), hx_request="true")
    assert (again.status, again.body in page.body) == (200, True)
    door = (await Browser(admin.app).get(f"/made/{quoted(name)}")).headers["location"]
    assert door.endswith(f"after=/ui/made/{quoted(quoted(name))}")


@pytest.mark.parametrize("to", ["/a\r\nset-cookie: carillon=chosen", "/日", "/a b", "/\x00"])
async def test_a_typed_address_stays_inside_and_adds_no_header(admin: Browser, to: str) -> None:
    moved = await admin.post("/made/x", {"to": to})
    assert moved.status == 303
    location = moved.headers["location"]
    assert location.startswith("/ui/")
    assert location.endswith("?said=saved")
    assert location.isascii()
    assert location.isprintable()
    assert " " not in location


async def test_a_page_that_fails_is_a_page_that_tells_nothing(admin: Browser) -> None:
    too_many = urlencode([(f"f{number}", "1") for number in range(2_001)])
    for reply in (
        await admin.get("/made/broken"),
        await admin._send("POST", "/ui/made/x", too_many.encode(), {"sec_fetch_site": "same-origin"}),
        await admin._send("POST", "/ui/made/x", b"to=" + b"x" * 4 * 2**20, {"sec_fetch_site": "same-origin"}),
    ):
        assert reply.status >= 400
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert reply.headers["content-security-policy"] == html.POLICY
        assert "hunter2" not in reply.body.decode()


async def test_a_stranger_does_not_learn_where_servers_are(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.store.CONNECT_MS", 50)
    away = Store.open("mongodb://127.0.0.1:1/none", timeout_seconds=1)
    app = house.build(ApiSettings(first_admin=ADMIN), store=away)
    browser = Browser(app, cookie="carillon=unknown")
    for reply in (await browser.get(""), await browser.sign_in("x"), await browser.get("/welcome?key=x"),
                  await browser.post("/sign-out")):  # fmt: skip
        assert (reply.status, reply.headers["content-type"]) == (503, "text/html; charset=utf-8")
        assert "127.0.0.1" not in reply.body.decode()
        assert "Nothing is lost" in text_of(reply)
    await away.close()
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        gc.collect()  # PyMongo drops the socket that its monitor was connecting when it was closed


async def test_a_large_page_is_compressed_beside_others(admin: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def compress(*args: Any, **kwargs: Any) -> bytes:
        threads.append(threading.current_thread())
        return original(*args, **kwargs)

    original = gzip.compress
    monkeypatch.setattr(gzip, "compress", compress)
    large = await admin.get("/made/x?size=300000", accept_encoding="gzip, br")
    assert large.headers["content-encoding"] == "gzip"
    assert b"x" * 300_000 in gzip.decompress(large.body)
    assert threads
    assert threading.main_thread() not in threads


async def test_an_address_of_many_parameters_costs_no_more_than_it_is_long(admin: Browser) -> None:
    asked = 0
    original = Visit.query

    def query(self: Visit, name: str) -> str:
        nonlocal asked
        asked += 1
        return original(self, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Visit, "query", query)
        assert (await admin.get("/made/x?" + "a=1&" * 1_000)).status == 200
    assert asked < 20


async def test_bytes_that_are_no_text_are_no_fault_of_ours(admin: Browser) -> None:
    for browser in (admin, Browser(admin.app)):
        reply = await browser.get("/made/x?a=%FF&%FE=%C0")
        assert reply.status in {200, 303}


@pytest.mark.parametrize("encoding", ["=nope", "=utf-16", "\r\n =punycode", '="unicode_escape"'])
@pytest.mark.parametrize("before", ["", "preamble\r\n", "--of-it\r\n\r\n--of-it\r\n"])
async def test_a_part_of_a_form_chooses_no_encoding(admin: Browser, encoding: str, before: str) -> None:
    part = f'content-disposition: form-data; name="to"\r\nContent-Type: text/plain;\r\n CHARSET{encoding}'
    body = f"{before}--of-it\r\n{part}\r\n\r\n\\ud800\r\n--of-it--\r\n".encode()
    headers = {"content_type": "multipart/form-data; boundary=of-it", "sec_fetch_site": "same-origin"}
    reply = await admin._send("POST", "/ui/made/x", body, headers)
    assert reply.status == 400
    assert "The texts of a form must be UTF-8" in text_of(reply)


async def test_a_file_may_hold_what_looks_like_a_part(admin: Browser) -> None:
    to = b'content-disposition: form-data; name="to"\r\n\r\n/a'
    file = b'content-disposition: form-data; name="f"; filename="charset"\r\ncontent-type: text/csv\r\n\r\n'
    file += b"content-type: text/plain; charset=x"
    body = b"--of-it\r\n%s\r\n--of-it\r\n%s\r\n--of-it--\r\n" % (to, file)
    headers = {"content_type": "multipart/form-data; boundary=of-it", "sec_fetch_site": "same-origin"}
    assert (await admin._send("POST", "/ui/made/x", body, headers)).headers["location"] == "/ui/a?said=saved"


@pytest.mark.parametrize("end", ["", "/"])
async def test_a_slash_at_the_end_hides_no_verb(admin: Browser, end: str) -> None:
    assert (await admin.post(f"/made/x/retry{end}")).headers["location"] == "/ui/made/retry"


@pytest.mark.parametrize("end", ["//", "%2F", "/x"])
async def test_a_verb_with_anything_behind_it_is_none(admin: Browser, end: str) -> None:
    assert (await admin.post(f"/made/x/retry{end}")).status in {404, 405}


async def test_a_page_acts_however_slow_the_process_is(admin: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.api.http.identity._TRUSTED_SECONDS", -1.0)
    assert (await admin.post("/made/orders/event", {"data": "1"})).status == 303


async def test_a_reason_is_one_line(house: House, admin: Browser) -> None:
    email = "typed@example.com"
    made = await admin.post("/made/x/user", {"email": email, "reason": "because\r\nrecord=forged \x1b[2J日"})
    assert made.status == 303
    record = next(
        each for each in (await house.admin.get("/audit?act=user.create")).json if each["on"]["name"] == email
    )
    assert record["reason"] == "because record=forged  [2J日"
    assert msgspec.json.encode(record["via"]) == b'"carillon-ui"'
    assert record["who"]["way"] == "proxy"
    long = await admin.post("/made/x/user", {"email": "other@example.com", "reason": "日" * 5_000})
    assert long.status == 422
