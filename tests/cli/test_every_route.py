"""Every route of the API is served by a verb: nobody can forget a new one.

The verbs run in this process, on an API that answers by its own document: each field has an example of its type. What
they have asked is held against the routes of the document.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from carillon.attempts import Query
from carillon.blocking_runtime import BlockingRuntime
from carillon.files import File
from carillon.transport import Answer
from services.cli import main
from services.cli.api import Api
from services.cli.session import Session
from tests.services.api.conftest import House
from tests.services.api.published import is_published

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

ID = "0190b5a2-0000-7000-8000-000000000000"
AT = "2030-01-01T00:00:00Z"
APP = ("--app", ID)
TEMPLATE = ("--template", "like")
HTTP = ("--http", "https://example.com/hook")

COMMANDS: list[tuple[str, ...]] = [
    ("apps", "list"),
    ("apps", "show", ID),
    ("apps", "create", "game", "com.example.game"),
    ("apps", "edit", ID, "--bundle-id", "com.example.other"),
    ("apps", "devices", ID, "u1"),
    ("apps", "delete", ID, "--yes"),
    ("audit", "list"),
    ("audit", "list", *APP),
    ("bulk", "list"),
    ("bulk", "show", ID),
    ("bulk", "start", "schedule.pause", "--filter", "prefix=a", "--reason", "a test", "--yes"),
    ("bulk", "cancel", ID, "--yes"),
    ("context", "show"),
    ("credentials", "list", *APP),
    ("credentials", "show", *APP, ID),
    ("credentials", "create", *APP, "sms", "--kind", "http", "--test-recipient", "ana", "--secret", "@secret.json"),
    ("credentials", "update", *APP, ID, "--rate", "5"),
    ("credentials", "delete", *APP, ID, "--yes"),
    ("credentials", "secret", *APP, ID, "@secret.json"),
    ("credentials", "test", *APP, ID),
    ("credentials", "suspend", *APP, ID),
    ("credentials", "activate", *APP, ID),
    ("credentials", "reencrypt"),
    ("deliveries", "list", ID),
    ("deliveries", "show", ID),
    ("dead-letters", "list"),
    ("dead-letters", "show", ID),
    ("dead-letters", "errors"),
    ("dead-letters", "retry", ID),
    ("dead-letters", "retry", "--all"),
    ("dead-letters", "discard", ID, "--yes"),
    ("dead-letters", "list", "--of", "bus"),
    ("dead-letters", "show", "--of", "bus", ID),
    ("dead-letters", "retry", "--of", "bus", ID),
    ("dead-letters", "retry", "--of", "bus", "--all"),
    ("dead-letters", "discard", "--of", "bus", ID, "--yes"),
    ("groups", "show", *APP, ID),
    ("groups", "pause", *APP, ID),
    ("groups", "resume", *APP, ID),
    ("groups", "stop", *APP, ID, "--yes"),
    ("jobs", "list"),
    ("jobs", "show", *APP, ID),
    ("jobs", "create", *APP, *TEMPLATE, "--csv", "users.csv"),
    ("jobs", "preview", *APP, *TEMPLATE),
    ("jobs", "pause", *APP, ID),
    ("jobs", "resume", *APP, ID),
    ("jobs", "stop", *APP, ID, "--yes"),
    ("jobs", "retry", *APP, ID, "--state", "unsent"),
    ("jobs", "delete", *APP, ID, "--yes"),
    ("jobs", "batches", *APP, ID),
    ("jobs", "rate", *APP, ID),
    ("jobs", "samples", *APP, ID),
    ("jobs", "messages", *APP, ID),
    ("messages", "send", *APP, "ana@example.com", "--credential", "sms", "--body", '{"text": "Hi"}'),
    ("messages", "import", *APP, "messages.ndjson"),
    ("messages", "cancel", *APP, ID, "--yes"),
    ("messages", "find", *APP, "ana@example.com"),
    ("messages", "redact", *APP, "ana@example.com", "--yes"),
    ("messages", "show", *APP, ID),
    ("minutes", "list"),
    ("namespaces", "list"),
    ("processes", "list"),
    ("publish", "orders", "--type", "create", "--url", "https://a.example.com/1"),
    ("queues", "list"),
    ("replays", "create", ID, "--from", "2h"),
    ("replays", "list", ID),
    ("replays", "cancel", ID, "--yes"),
    ("calendars", "list"),
    ("calendars", "show", ID),
    ("calendars", "put", ID, "--date", "2030-12-25"),
    ("calendars", "delete", ID, "--yes"),
    ("schedules", "list"),
    ("schedules", "due"),
    ("schedules", "show", ID),
    ("schedules", "create", ID, "--every", "3600", *HTTP),
    ("schedules", "apply", "schedules.json"),
    ("schedules", "preview", "--every", "3600"),
    ("schedules", "fire", ID),
    ("schedules", "move", ID, "--anchor", AT),
    ("schedules", "move", "--label", "day=1", "--by", "+1d"),
    ("schedules", "backfill", ID, "--from", "2020-01-01", "--to", "2020-01-02"),
    ("schedules", "pause", ID),
    ("schedules", "resume", ID),
    ("schedules", "cancel", ID, AT, "--yes"),
    ("schedules", "delete", ID, "--yes"),
    ("sessions", "list"),
    ("sessions", "end", ID),
    ("settings", "list"),
    ("signing-secrets", "create"),
    ("status",),
    ("subscriptions", "list"),
    ("subscriptions", "show", ID),
    ("subscriptions", "health", ID),
    ("subscriptions", "test", ID),
    ("subscriptions", "put", ID, "--callback", "https://example.com/hook", "--topic", "orders"),
    ("subscriptions", "pause", ID),
    ("subscriptions", "resume", ID),
    ("subscriptions", "secret", ID),
    ("subscriptions", "delete", ID, "--yes"),
    ("suppressions", "list", *APP),
    ("suppressions", "add", *APP, "ana@example.com", "--channel", "mail"),
    ("suppressions", "import", *APP, "addresses.txt", "--channel", "mail"),
    ("suppressions", "remove", *APP, "ana@example.com", "--yes"),
    ("templates", "list", *APP),
    ("templates", "show", *APP, ID),
    ("templates", "create", *APP, "greet", "--locale", "en", "--body", '{"alert": "Hi"}'),
    ("templates", "edit", *APP, ID, "--body", '{"alert": "Hi"}'),
    ("templates", "render", *APP, ID),
    ("templates", "delete", *APP, ID, "--yes"),
    ("tokens", "list"),
    ("tokens", "create", "billing"),
    ("tokens", "rotate", ID),
    ("tokens", "revoke", ID, "--yes"),
    ("topics", "list"),
    ("topics", "show", "orders"),
    ("topics", "put", "orders", "--description", "What is ordered.", "--private"),
    ("topics", "delete", "orders", "--yes"),
    ("topics", "pressure"),
    ("users", "list"),
    ("users", "create", "ana@example.com"),
    ("users", "show", ID),
    ("users", "edit", ID, "--admin"),
    ("users", "delete", ID, "--yes"),
]
# Routes that no verb asks, and why.
LEFT_OUT = {
    ("GET", "/healthcheck"): "Marathon's: it says less than `carillon status`",
    ("GET", "/u/{token}"): "a recipient's own link, which leads to a page",
    ("POST", "/u/{token}"): "what the page, or a recipient's mail program, posts",
    ("PUT", "/uploads/{path}"): "its URL is what `GET /uploadurl` answers",
    ("POST", "/callbacks/{credentialId}"): "providers call it",
    ("POST", "/callbacks/{credentialId}/{messageId}"): "providers call it",
    ("GET", "/apps/{appId}/templates/{templateId}"): "`carillon templates show` finds a template by name, in the list",
    ("POST", "/schedules/bulk"): "`carillon schedules apply` puts one after the other, and tells of each",
    ("DELETE", "/apps/{appId}/recipients/{address}"): "`carillon messages redact` names the address in the query",
    ("GET", "/apps/{appId}/jobs"): "Marathon's: `carillon jobs list --app` asks GET /jobs",
}


class ByDocument:
    """A transport whose other end answers with what its document says, and keeps what it was asked."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.runtime = BlockingRuntime()
        self.asked: set[tuple[str, str]] = set()
        self._document = document

    async def call(self, method: str, path: str, **_: Any) -> Answer:
        return self._answer(method, path)

    async def send_file(self, method: str, path: str, query: Query, file: File) -> Answer:
        assert (query["part"], file.size) == ("1", 6)
        return self._answer(method, path)

    async def upload(self, path: str, *_: Any) -> Answer:
        return self._answer("GET", path)

    async def close(self) -> None:
        """Nothing is open."""

    def _answer(self, method: str, path: str) -> Answer:
        route, operation = self._route(method, path)
        self.asked.add((method, route))
        status, told = next((int(code), each) for code, each in operation["responses"].items() if code[0] == "2")
        if "content" not in told:
            return Answer(status, {}, b"")
        [media] = told["content"].values()
        return Answer(status, {}, msgspec.json.encode(self._example(media["schema"])))

    def _route(self, method: str, path: str) -> tuple[str, dict[str, Any]]:
        matching = [
            (route, described[method.lower()])
            for route, described in self._document["paths"].items()
            if method.lower() in described and pattern(route).fullmatch(path)
        ]
        return min(matching, key=lambda each: each[0].count("{"))

    def _example(self, schema: Mapping[str, Any]) -> Any:
        """A value of this schema. What is an id, or may be one, is the same everywhere."""
        if "$ref" in schema:
            return self._example(self._document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        if several := schema.get("anyOf") or schema.get("oneOf"):
            return self._example(min(several, key=lambda each: each.get("type") == "array"))
        if "enum" in schema:
            return schema["enum"][-1]
        kind = schema.get("type")
        match kind[0] if isinstance(kind, list) else kind:
            case "object":
                return {key: self._example(each) for key, each in schema.get("properties", {}).items()}
            case "array":
                return [self._example(each) for each in schema.get("prefixItems", [schema.get("items", {})])]
            case "string":
                return AT if schema.get("format") == "date-time" else ID
            case "integer" | "number":
                return 1
            case "boolean":
                return False
            case "null":
                return None
            case _:
                return {}


def pattern(route: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(route)))


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The files that the commands name, where they run."""
    (tmp_path / "users.csv").write_bytes(b"id\nu1\n")
    schedule = {"key": "a", "every": 60, "callback": {"type": "http", "data": {"url": "https://example.com/hook"}}}
    (tmp_path / "schedules.json").write_bytes(msgspec.json.encode(schedule))
    (tmp_path / "addresses.txt").write_bytes(b"ana@example.com\n")
    (tmp_path / "messages.ndjson").write_bytes(b'{"credential": "sms", "to": "ana@example.com", "body": {}}\n')
    (tmp_path / "secret.json").write_bytes(b'{"token": "hush"}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CARILLON_TARGET", "http://127.0.0.1:1")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.usefixtures("offered")
async def test_every_route_is_served_by_a_verb(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (await house.admin.get("/openapi.json")).json
    transport = ByDocument(document)
    monkeypatch.setattr(Session, "api", property(lambda _: Api(transport)))  # type: ignore[arg-type]
    ends = {words: CliRunner().invoke(main, words) for words in COMMANDS}
    monkeypatch.setattr("services.cli.job_options.IN_PARTS_BYTES", 0)
    large = CliRunner().invoke(main, ("jobs", "preview", *APP, *TEMPLATE, "--csv", "users.csv"))
    # That a template has a fault, that not all is well, and that a receiver takes nothing, are answers, too.
    told = {("status",), ("subscriptions", "test", ID)}
    failed = {words: end for words, end in ends.items() if end.exit_code and end.output.partition(":")[0] != "Error"}
    assert {words: (end.output, end.exception) for words, end in failed.items() if words not in told} == {}
    assert large.exit_code == 0
    ours = {path: methods for path, methods in document["paths"].items() if not is_published(path)}
    routes = {(method.upper(), path) for path, methods in ours.items() for method in methods}
    assert sorted(routes - transport.asked) == sorted(LEFT_OUT)
