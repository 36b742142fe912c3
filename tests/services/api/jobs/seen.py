"""What a reader sees of a page of the dashboard, by its HTML."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

from tests.services.api.client import Client, Reply


@dataclass
class Seen(HTMLParser):
    """The words of a page, where its links and forms lead, and its elements with a class."""

    html: str
    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    forms: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    refreshes: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.links += [given.get("href") or ""] * (tag == "a")
        self.forms += [given.get("action") or ""] * (tag == "form")
        self.refreshes = self.refreshes or "hx-get" in given
        if tag == "input":
            self.values[given.get("name") or ""] = given.get("value") or ""

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(self.words)


async def look(client: Client, path: str, status: int = 200) -> Seen:
    reply = await client.get(f"/ui{path}")
    assert reply.status == status, reply.body
    return Seen(reply.body.decode())


async def press(client: Client, path: str, **fields: str) -> Reply:
    """Send a form."""
    body = "&".join(f"{name}={value}" for name, value in fields.items()).encode()
    typed = {"content-type": "application/x-www-form-urlencoded"}
    return await client.send("POST", f"/ui{path}", body, headers=typed)
