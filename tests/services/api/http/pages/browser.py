"""A browser without a screen: it keeps cookies, sends forms as browsers do, and reads pages as text."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode

from services.api.app import Application
from tests.services.api.client import Client, Reply

STRANGER = "203.0.113.9"
HERE = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}


@dataclass
class Browser:
    """Somebody's browser, somewhere in the world."""

    app: Application
    cookie: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    peer: str = STRANGER

    async def get(self, path: str, **headers: str) -> Reply:
        """Look at a page below `/ui`."""
        return await self._send("GET", f"/ui{path}", b"", headers)

    async def post(self, path: str, fields: dict[str, str] | None = None, /, **headers: str) -> Reply:
        """Send a form."""
        typed = urlencode(fields or {}).encode()
        kind = {"content_type": "application/x-www-form-urlencoded"}
        return await self._send("POST", f"/ui{path}", typed, kind | (headers or HERE))

    async def sign_in(self, token: str, after: str = "") -> Reply:
        """Sign in with a token."""
        return await self.post("/sign-in", {"token": token, "after": after})

    async def _send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        cookie = {"cookie": self.cookie} if self.cookie else {}
        client = Client(self.app, self.headers | cookie, self.peer)
        reply = await client.send(method, path, body, headers=named)
        if "set-cookie" in reply.headers:
            self.cookie = reply.headers["set-cookie"].partition(";")[0]
        return reply


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


def _parse(reply: Reply) -> _Texts:
    parser = _Texts()
    parser.feed(reply.body.decode())
    return parser


def text_of(reply: Reply) -> str:
    """The words of a page."""
    return " ".join(" ".join(_parse(reply).texts).split())


def tags_of(reply: Reply, tag: str) -> list[dict[str, str | None]]:
    """The attributes of each of these elements."""
    return [attributes for name, attributes in _parse(reply).tags if name == tag]


def fields_of(reply: Reply) -> dict[str, str]:
    """What is in the fields of a page's forms."""
    return {each["name"] or "": each.get("value") or "" for each in tags_of(reply, "input") if "name" in each}
