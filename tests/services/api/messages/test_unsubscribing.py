"""A recipient's own link: looking changes nothing, posting does, and nobody makes a link of their own."""

import asyncio
import copy
import re
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from services.wiring.api import build_api
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.core.errors import Unavailable
from shared.drivers.secrets import KeyRing, fresh_key
from shared.messages.barring import UnsubscribeLinks
from shared.messages.rules.answers import Channel
from shared.messages.rules.suppressions import (
    Suppression,
    SuppressionCause,
    UnsubscribeTokens,
    listing_of,
    suppress_address,
)
from shared.runtime.server_settings import ProviderSettings
from shared.runtime.settings import ApiSettings
from tests.services.api.client import Client, Reply
from tests.services.api.conftest import SETTINGS, House
from tests.services.api.messages.conftest import capabilities_with

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ANN = "ann@example.com"
FORM = {"content_type": "application/x-www-form-urlencoded"}
ONE_CLICK = b"List-Unsubscribe=One-Click"
HTML = "text/html,application/xhtml+xml,*/*;q=0.8"
COME_BACK = b"List-Unsubscribe=Come-Back"
MULTIPART = (
    b'--b\r\nContent-Disposition: form-data; name="List-Unsubscribe"\r\n'
    b"Content-Type: text/plain\r\n\r\nOne-Click\r\n--b--\r\n"
)


@pytest.fixture
def links(house: House) -> UnsubscribeLinks:
    return UnsubscribeLinks(house.servers.key_ring, public_url="https://push.example.com/")


@pytest.fixture
def browser(house: House) -> Client:
    """Somebody of whom nothing is known."""
    return Client(house.admin.app, {"accept": HTML}, peer="203.0.113.9")


def link(links: UnsubscribeLinks, app_id: str, list_name: str = "", address: str = ANN) -> str:
    [url] = links.urls_of(app_id, Channel.MAIL, [address], list_name)
    return url.removeprefix("https://push.example.com")


async def post(browser: Client, path: str, body: bytes = ONE_CLICK, headers: Mapping[str, str] = FORM) -> Reply:
    return await browser.send("POST", path, body, headers=dict(headers))


async def stored(house: House, app_id: str) -> list[Suppression]:
    return [*await house.store.suppressions.page(app_id, limit=100)]


class Page(HTMLParser):
    """What a person and a browser make of a page."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        assert reply.headers["content-type"].startswith("text/html")
        self.feed(reply.body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def offered(self) -> list[str | None]:
        """What the buttons would send."""
        return [attrs["value"] for tag, attrs in self.tags if tag == "input"]


async def test_looking_changes_nothing(house: House, browser: Client, links: UnsubscribeLinks) -> None:
    app_id = await house.app()
    url = link(links, app_id, "news")
    pages = [Page(await browser.get(url)) for _ in range(3)]
    assert {(page.text, *page.offered) for page in pages} == {(pages[0].text, "One-Click")}
    assert "messages of news from game" in pages[0].text
    assert await stored(house, app_id) == []


async def test_who_posts_unsubscribes_once_and_may_come_back(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    url = link(links, app_id, "news")
    for _ in range(2):
        done = await post(browser, url)
        assert (done.status, Page(done).offered) == (200, ["Come-Back"])
        assert "You have unsubscribed" in Page(done).text
    [suppression] = await stored(house, app_id)
    assert (suppression.cause, suppression.list, suppression.address) == (SuppressionCause.UNSUBSCRIBE, "news", "")
    found = await house.store.suppressions.find(app_id, Channel.MAIL, [ANN], "news")
    assert {*found} == {ANN}
    assert await house.store.suppressions.find(app_id, Channel.MAIL, [ANN], "offers") == {}
    for _ in range(2):
        back = await post(browser, url, COME_BACK)
        assert (back.status, Page(back).offered) == (200, ["One-Click"])
    assert await stored(house, app_id) == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=b", MULTIPART),
        ('Multipart/Form-Data; boundary="b"', MULTIPART),
        ("application/x-www-form-urlencoded; charset=utf-8", b"a=b&List%2DUnsubscribe=One%2DClick"),
        ("application/x-www-form-urlencoded", b"List-Unsubscribe=One-Click\r\n"),
        ("", ONE_CLICK),
    ],
)
async def test_mail_programs_send_either_kind_of_form(
    house: House, browser: Client, links: UnsubscribeLinks, kind: str, body: bytes
) -> None:
    app_id = await house.app()
    done = await post(browser, link(links, app_id), body, {"content_type": kind} if kind else {})
    assert done.status == 200, done.body
    assert [each.list for each in await stored(house, app_id)] == [""]


@pytest.mark.parametrize(
    "body", [b"", b"x", b"List-Unsubscribe=", b"List-Unsubscribe=one", b'{"List-Unsubscribe":"One-Click"}', MULTIPART]
)
async def test_what_is_no_such_form_changes_nothing(
    house: House, browser: Client, links: UnsubscribeLinks, body: bytes
) -> None:
    app_id = await house.app()
    refused = await post(browser, link(links, app_id), body)
    assert (refused.status, refused.json["field"]) == (422, "List-Unsubscribe")
    assert await stored(house, app_id) == []


async def test_a_body_that_is_no_form_of_any_size_is_too_large(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    assert (await post(browser, link(links, app_id), ONE_CLICK + b"&x=" + b"x" * 4_096)).status == 413
    assert await stored(house, app_id) == []


async def test_no_token_of_others_and_none_that_was_changed_is_taken(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    url = link(links, app_id)
    listing = listing_of(app_id, Channel.MAIL, ANN)
    signed_by_others = UnsubscribeTokens([b"their key"]).make(listing)
    unnamed = UnsubscribeTokens(KeyRing([fresh_key()]).derive("unsubscribing")).make(listing)
    other_use = UnsubscribeTokens(house.servers.key_ring.derive("something else")).make(listing)
    forged = [signed_by_others, unnamed, other_use, url[3:-1], url[3:] + "A", url[3:].swapcase(), "x", "a" * 5_000]
    for token in forged:
        for reply in (await browser.get(f"/u/{token}"), await post(browser, f"/u/{token}")):
            assert reply.status == 404, token
            assert (Page(reply).offered, "Nothing was changed" in Page(reply).text) == ([], True)
    program = Client(house.admin.app, peer="203.0.113.9")
    for reply in (await program.get("/u/none"), await post(program, "/u/none")):
        assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
    for path in ("/u", "/u/", f"{url}/more"):
        assert (await browser.get(path)).status == 404
    assert await stored(house, app_id) == []


async def test_a_token_is_of_one_app_alone(house: House, browser: Client, links: UnsubscribeLinks) -> None:
    mine, theirs = await house.app(), await house.app()
    await post(browser, link(links, mine))
    assert len(await stored(house, mine)) == 1
    assert await stored(house, theirs) == []


async def test_the_link_of_an_app_that_is_gone_leads_nowhere_and_leaves_nothing(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 204
    for reply in (await browser.get(link(links, app_id)), await post(browser, link(links, app_id))):
        assert reply.status == 404
    assert await stored(house, app_id) == []


async def test_a_bar_is_neither_shown_as_a_wish_nor_lifted(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    url = link(links, app_id)
    bar = suppress_address(
        app_id, Channel.MAIL, ANN, cause=SuppressionCause.BOUNCE, at=house.clock.now(), message_id="m1"
    )
    await house.store.suppressions.add([bar])
    first = Page(await browser.get(url))
    assert first.offered == ["One-Click"]
    assert "for another reason" in first.text
    assert Page(await post(browser, url)).offered == ["Come-Back"]
    assert Page(await post(browser, url, COME_BACK)).offered == ["One-Click"]
    assert [(each.cause, each.message_id, each.unsubscribed_at) for each in await stored(house, app_id)] == [
        (SuppressionCause.BOUNCE, "m1", None)
    ]


async def test_who_wants_nothing_at_all_is_told_so_by_the_link_of_a_list(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    await post(browser, link(links, app_id))
    page = Page(await browser.get(link(links, app_id, "news")))
    assert page.offered == []
    assert "unsubscribed from all messages" in page.text


@pytest.mark.parametrize("list_name", ['<script>alert("x")</script>', "\"><img src=x onerror='alert(1)'>", "&lt;b&gt;"])
async def test_what_stands_in_the_page_is_escaped(
    house: House, browser: Client, links: UnsubscribeLinks, list_name: str
) -> None:
    app_id = await house.app()
    for reply in (
        await browser.get(link(links, app_id, list_name)),
        await post(browser, link(links, app_id, list_name)),
    ):
        page = Page(reply)
        assert list_name in page.text
        assert {tag for tag, _ in page.tags} == {
            "html", "head", "meta", "title", "style", "body", "main", "h1", "p", "form", "input", "button",
        }  # fmt: skip


async def test_the_page_loads_runs_keeps_and_tells_nothing(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    url = link(links, app_id)
    replies = [await browser.get(url), await post(browser, url), await browser.get("/u/none")]
    for reply in replies:
        policy = reply.headers["content-security-policy"]
        assert re.fullmatch(
            r"default-src 'none'; style-src 'sha256-[\w+/]+=*'; form-action 'self'; base-uri 'none'; "
            "frame-ancestors 'none'",
            policy,
        )
        assert reply.headers["x-robots-tag"] == "noindex, nofollow"
        assert reply.headers["referrer-policy"] == "same-origin"
        assert reply.headers["cache-control"] == "no-store"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in reply.headers
        page = Page(reply)
        assert [name for _, attrs in page.tags for name in attrs if name in {"src", "href", "action", "style"}] == []
        assert ("html", {"lang": "en"}) in page.tags
        assert "<title>" in reply.body.decode()


async def test_a_mail_program_may_be_a_page_of_another_site(
    house: House, browser: Client, links: UnsubscribeLinks
) -> None:
    app_id = await house.app()
    for headers in ({"origin": "https://mail.example"}, {"sec_fetch_site": "cross-site"}):
        assert (await post(browser, link(links, app_id), headers=FORM | headers)).status == 200
        assert len(await stored(house, app_id)) == 1


async def test_who_is_known_is_treated_as_anybody(house: House, links: UnsubscribeLinks) -> None:
    app_id = await house.app()
    assert (await post(house.admin, link(links, app_id))).status == 200


class NoApps:
    async def get(self, *_: object) -> None:
        raise Unavailable("MongoDB: gone")


async def test_where_the_store_is_away_nobody_is_told_that_it_is_done(house: House, links: UnsubscribeLinks) -> None:
    url = link(links, await house.app())
    away = copy.copy(house.store)
    away.apps = NoApps()  # type: ignore[assignment]
    app = house.build(store=away)
    page = await post(Client(app, {"accept": HTML}), url)
    problem = await post(Client(app, {"accept": "*/*"}), url)
    assert [reply.status for reply in (page, problem)] == [503, 503]
    assert page.headers["retry-after"] == problem.headers["retry-after"] == "2"
    assert "Please try again" in Page(page).text
    assert problem.headers["content-type"] == "application/problem+json"


async def test_many_at_a_time_are_one(house: House, browser: Client, links: UnsubscribeLinks) -> None:
    app_id = await house.app()
    url = link(links, app_id)
    replies = await asyncio.gather(*(post(browser, url) for _ in range(20)))
    assert {reply.status for reply in replies} == {200}
    assert len(await stored(house, app_id)) == 1


async def test_links_of_an_older_key_work_and_without_a_key_none_do(house: House) -> None:
    app_id = await house.app()
    old, new = fresh_key(), fresh_key()
    made_before = UnsubscribeLinks(KeyRing([old]), public_url="https://push.example.com")
    url = link(made_before, app_id)
    for keys, status in ((f"{new},{old}", 200), (new, 404), ("", 404)):
        rooms = Rooms(capabilities_with(house, ProviderSettings(secret_keys=keys)))
        browser = Client(build_api(rooms), peer="203.0.113.9")
        assert (await browser.get(url)).status == status


def made_links(house: House, *, public_url: str, keys: str) -> UnsubscribeLinks:
    settings = replace(
        SETTINGS, api=replace(SETTINGS.api, public_url=public_url), providers=ProviderSettings(secret_keys=keys)
    )
    opened = {"settings", "key_ring"}
    given = {name: value for name, value in vars(house.servers).items() if name not in opened}
    return Rooms(Servers(settings=settings, **given)).messages.links


async def test_links_need_a_public_url_and_a_key(house: House) -> None:
    assert isinstance(SETTINGS.api, ApiSettings)
    whole = made_links(house, public_url="https://push.example.com/mail/", keys=fresh_key())
    [url] = whole.urls_of("app", Channel.MAIL, [ANN])
    assert re.fullmatch(r"https://push\.example\.com/mail/u/[\w-]+", url)
    assert whole.can_link
    for public_url, keys in (("", fresh_key()), ("https://push.example.com", "")):
        without = made_links(house, public_url=public_url, keys=keys)
        assert not without.can_link
        assert without.urls_of("app", Channel.MAIL, [ANN, "bo@example.com"]) == ["", ""]


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize(
    "written",
    [
        *("/u/{}", "/u/{}/", "/u/{}/x", "/u//{}", "/x//u//{}", "/%75/{}", "/u%2F{}", "/%2575%252f{}", "/U/{}"),
        *("/api_tokens/{}/x", "/%61pi_tokens//{}", "/apps/1/recipients/{}/x", "/apps//recipients%2F{}"),
    ],
)
async def test_the_log_shows_no_token(
    house: House, browser: Client, links: UnsubscribeLinks, method: str, written: str
) -> None:
    token = link(links, await house.app()).removeprefix("/u/")
    with capture_logs() as logs:
        await browser.send(method, written.format(token))
    [shown] = [each for each in logs if each["event"] == "request answered"]
    assert shown["path"].endswith("/***")
    assert token not in str(logs)
