"""What somebody sees of a page, and forms as browsers send them."""

from html.parser import HTMLParser
from itertools import count
from typing import Any
from urllib.parse import urlencode

from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House

_serials = count()
_VOID = frozenset({"meta", "link", "input", "img", "br"})
_HOSTILE = frozenset({"b", "marquee"})


class Seen(HTMLParser):
    """A page: its text, where its links and forms lead, what its fields hold, and the tags that it has."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.status = reply.status
        self.links: list[str] = []
        self.actions: list[str] = []
        self.fields: dict[str, list[str]] = {}
        self.wrong: dict[str, str] = {}
        self.tags: set[str] = set()
        self._text: list[str] = []
        self._open: list[tuple[str, dict[str, str]]] = []
        self.feed(reply.body.decode())
        self.text = " ".join(" ".join(self._text).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        if tag == "a":
            self.links.append(named.get("href", ""))
        self.actions += [named[name] for name in ("action", "formaction") if name in named]
        if tag == "input" and (named.get("type") not in {"radio", "checkbox"} or "checked" in named):
            self.fields.setdefault(named.get("name", ""), []).append(named.get("value", ""))
        if tag not in _VOID:
            self._open.append((tag, named))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self._text.append(data)
        for tag, named in self._open:
            if tag == "textarea":
                self.fields.setdefault(named["name"], []).append(data.strip())
            if named.get("class") == "wrong":
                field = named.get("id", "").removeprefix("wrong-")
                self.wrong[field] = self.wrong.get(field, "") + data

    @property
    def is_clean(self) -> bool:
        """Whether nothing that was only a name or a payload has become a part of the page."""
        return not self.tags & _HOSTILE


async def look(client: Client, path: str, **query: Any) -> Seen:
    """The page at this path below `/ui`."""
    return Seen(await client.get(f"/ui{path}" + (f"?{urlencode(query)}" if query else "")))


async def fill(client: Client, path: str, fields: Any = (), **query: Any) -> Reply:
    """Send a form."""
    target = f"/ui{path}" + (f"?{urlencode(query)}" if query else "")
    form = {"content_type": "application/x-www-form-urlencoded"}
    return await client.send("POST", target, urlencode(fields, doseq=True).encode(), headers=form)


async def person(house: House, **fields: Any) -> tuple[Client, str]:
    """Somebody new who comes through the proxy, and their namespace."""
    email = f"person{next(_serials)}@example.com"
    made = await house.admin.post("/users", {"email": email, **fields})
    assert made.status == 201, made.body
    return house.admin.someone(email), f"user:{email}"
