"""What stands before every route: pages of other sites, other names, a proxy's secret, and caches."""

from typing import Any

import pytest
from litestar import Litestar

from services.api.http.documentation import DocumentationResource
from shared.runtime.settings import ApiSettings
from tests.services.api.client import ADMIN, Client, Reply
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVIL = "https://evil.example"
SECRET = "a-secret-of-the-proxy"


def behind(house: House, **settings: Any) -> Client:
    """The admin before an API with these settings."""
    app = house.build(ApiSettings(first_admin=ADMIN, **settings))
    return Client(app, dict(house.admin.headers))


async def asked(client: Client, method: str, path: str, body: Any = b"", **headers: str) -> Reply:
    """Ask with just these headers beside the identity; two of one name by `name_`."""
    pairs = [(name.rstrip("_").replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    own = [(name.encode(), value.encode()) for name, value in client.headers.items()]
    return await client.exchange(method, path, body, own + pairs, host=None if "host" in headers else "localhost")


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "none", "sec_fetch_site_": "cross-site"},
        {"sec_fetch_site": ""},
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "https://[::1"},
        {"origin": "http://localhost:8081"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "http://localhost", "origin_": EVIL},
        {"origin": EVIL, "sec_fetch_site": "same-origin"},
    ],
)
async def test_pages_of_other_sites_change_nothing(house: House, headers: dict[str, str]) -> None:
    body = b'{"name": "stolen", "isAdmin": true}'
    reply = await asked(house.admin, "POST", "/tokens", body, content_type="text/plain", **headers)
    assert (reply.status, reply.headers["content-type"]) == (403, "application/problem+json")
    assert reply.json["field"] in {"origin", "sec-fetch-site"}
    assert "stolen" not in (await house.admin.get("/tokens")).body.decode()
    assert (await asked(house.admin, "GET", "/tokens", **headers)).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec_fetch_site": "none"},
        {"sec_fetch_site": "same-origin", "origin": "http://localhost"},
        {"origin": "https://localhost"},
        {"origin": "http://LOCALHOST:80"},
    ],
)
async def test_programs_and_our_own_pages_pass(house: House, headers: dict[str, str]) -> None:
    assert (await asked(house.admin, "POST", "/tokens", b'{"name": "fine"}', **headers)).status == 201


async def test_listed_origins_and_that_of_the_public_url_pass(house: House) -> None:
    client = behind(
        house, allowed_origins=("https://tools.example.com",), public_url="https://carillon.example.com/push"
    )
    for origin, status in {
        "https://tools.example.com": 201, "https://carillon.example.com": 201, "https://carillon.example.com:443": 201,
        "https://carillon.example.com:444": 403, "https://tools.example.com.evil.example": 403,
    }.items():  # fmt: skip
        reply = await asked(client, "POST", "/tokens", b'{"name": "fine"}', origin=origin)
        assert (origin, reply.status) == (origin, status)
    listed = {"origin": "https://tools.example.com", "sec_fetch_site": "cross-site"}
    assert (await asked(client, "POST", "/tokens", b'{"name": "fine"}', **listed)).status == 201


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "LocalHost:1", "[::1]:8080", "[::1]", "localhost."])
async def test_on_loopback_its_names_are_answered(house: House, host: str) -> None:
    assert (await asked(house.admin, "GET", "/apps", host=host)).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.2", "", "[::2]", "localhost@evil"]
)
async def test_on_loopback_no_other_name_is_answered(house: House, host: str) -> None:
    for path in ("/apps", "/uploadurl", "/docs", "/nowhere"):
        reply = await asked(house.admin, "GET", path, host=host)
        assert (reply.status, reply.json["field"], reply.json["value"]) == (421, "host", host)
        assert "api.allowed_hosts" in reply.json["reason"]


async def test_two_names_or_none_are_not_answered(house: House) -> None:
    assert (await asked(house.admin, "GET", "/apps", host="localhost", host_="evil.example")).status == 421
    own = [(b"x-forwarded-email", ADMIN.encode())]
    assert (await house.admin.exchange("GET", "/apps", b"", own, host=None)).status == 421


async def test_elsewhere_any_name_is_answered_unless_there_is_a_list(house: House) -> None:
    everywhere = behind(house, host="0.0.0.0")
    assert (await asked(everywhere, "GET", "/apps", host="whatever.example")).status == 200
    listed = behind(
        house, host="0.0.0.0", allowed_hosts=("push.example.com",), public_url="https://carillon.example.com"
    )
    for host, status in {
        "push.example.com": 200, "PUSH.example.com:8080": 200, "carillon.example.com": 200, "10.1.2.3:8080": 421,
        "localhost": 421,
    }.items():  # fmt: skip
        assert (host, (await asked(listed, "GET", "/apps", host=host)).status) == (host, status)


async def test_a_health_check_by_address_is_answered(house: House) -> None:
    listed = behind(house, host="0.0.0.0", allowed_hosts=("push.example.com",))
    assert (await asked(listed, "GET", "/healthcheck", host="10.1.2.3:8080")).status == 200


async def test_links_are_made_of_the_public_url(house: House) -> None:
    client = behind(house, host="0.0.0.0", public_url="https://carillon.example.com/push/")
    given = (await asked(client, "GET", "/uploadurl", host="evil.example")).json["url"]
    assert given.startswith("https://carillon.example.com/push/uploads/")
    for number in range(2):
        await client.post("/tokens", {"name": f"n{number}"})
    link = (await client.get("/tokens?limit=1")).headers["link"]
    assert link.startswith("</push/tokens?limit=1&cursor=")
    page = (await client.get("/docs")).body.decode()
    assert 'src="/push/docs/page.js"' in page
    assert '"/push/openapi.json"' in (await client.get("/docs/page.js")).body.decode()
    assert (await client.get("/openapi.json")).json["servers"] == [{"url": "https://carillon.example.com/push"}]


@pytest.mark.parametrize(
    ("accept", "status"),
    [("text/html,application/xhtml+xml,*/*;q=0.8", 303), ("*/*", 200), ("application/json", 200), (None, 200)],
)
async def test_the_root_leads_a_browser_to_the_dashboard_and_tells_a_program_the_ways(
    house: House, accept: str | None, status: int
) -> None:
    for client, path in (
        (behind(house, host="0.0.0.0", public_url="https://carillon.example.com/push/"), "/push"),
        (Client(house.admin.app, {}, "203.0.113.9"), ""),
    ):
        reply = await asked(client, "GET", "/", **({"accept": accept} if accept else {}))
        assert (reply.status, reply.headers["vary"]) == (status, "accept")
        if status == 303:
            assert (reply.headers["location"], reply.body) == (f"{path}/ui", b"")
        else:
            assert reply.json == {
                "dashboard": f"{path}/ui", "docs": f"{path}/docs", "openapi": f"{path}/openapi.json",
            }  # fmt: skip


async def test_the_root_names_no_dashboard_where_there_is_none() -> None:
    app = Litestar(DocumentationResource([]).handlers(), openapi_config=None)
    reply = await Client(app).get("/", accept="text/html")
    assert (reply.status, reply.json) == (200, {"docs": "/docs", "openapi": "/openapi.json"})


async def test_without_a_public_url_links_are_made_of_the_host(house: House) -> None:
    given = (await asked(house.admin, "GET", "/uploadurl", host="localhost:8080")).json["url"]
    assert given.startswith("http://localhost:8080/uploads/")


async def test_a_proxy_with_a_secret_must_show_it(house: House) -> None:
    client = behind(house, proxy_secret=SECRET)
    name = "x_carillon_proxy_secret"
    assert (await asked(client, "GET", "/apps", **{name: SECRET})).status == 200
    for headers in ({}, {name: ""}, {name: SECRET[:-1]}, {name: SECRET.upper()}, {name: SECRET, f"{name}_": SECRET}):
        reply = await asked(client, "GET", "/apps", **headers)
        assert reply.status == 401
        assert SECRET not in reply.body.decode()
    made = (await asked(client, "POST", "/tokens", b'{"name": "service"}', **{name: SECRET})).json
    assert (await client.service(made["token"]).get("/apps")).status == 200


async def test_no_answer_is_sniffed_or_kept_but_the_documentations_files(house: House) -> None:
    calls = [
        ("GET", "/apps", {}), ("POST", "/tokens", {}), ("GET", "/nowhere", {}), ("GET", "/healthcheck", {}),
        ("GET", "/openapi.json", {}), ("GET", "/docs", {}), ("GET", "/apps", {"host": "evil.example"}),
        ("POST", "/tokens", {"origin": EVIL}),
    ]  # fmt: skip
    for method, path, headers in calls:
        reply = await asked(house.admin, method, path, b'{"name": "n"}', **headers)
        assert (path, reply.headers["x-content-type-options"]) == (path, "nosniff")
        assert (path, reply.headers["cache-control"]) == (path, "no-store")
    for name in ("swagger-ui.css", "page.js"):
        reply = await house.admin.get(f"/docs/{name}")
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "max-age=86400"
