"""Pages as somebody sees them: their text, where links and forms lead, and what fields hold."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import MappingProxyType
from urllib.parse import urlencode

from tests.services.api.client import Client, Reply

_NOTHING: Mapping[str, str] = MappingProxyType({})
_VOID = {"input", "meta", "link", "img", "br"}


@dataclass
class Look(HTMLParser):
    """One page. `words` is its text, `wrong` what stands beside fields, `scripts` what a browser would run."""

    reply: Reply
    links: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, dict[str, str]]] = []
        self.feed(self.reply.body.decode())

    @property
    def status(self) -> int:
        return self.reply.status

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        has = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(has.get("href", ""))
        if tag == "form":
            self.actions.append(has.get("action", ""))
        if tag == "input" and "name" in has:
            self.fields[has["name"]] = has.get("value", "")
        if tag == "script" and "src" not in has:
            self.scripts.append(tag)
        if any(name.startswith("on") or name == "style" for name in has):
            self.scripts.append(f"{tag} {has}")
        if tag not in _VOID:
            self._open.append((tag, has))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        tag, has = self._open[-1] if self._open else ("", {})
        if tag == "textarea":
            self.fields[has["name"]] = self.fields.get(has["name"], "") + data
        if tag == "span" and has.get("class") == "wrong" and data.strip():
            self.wrong.append(data)


async def look(client: Client, path: str, **query: str) -> Look:
    """The page at this path below `/ui`."""
    return Look(await client.get(f"/ui{path}" + (f"?{urlencode(query)}" if query else "")))


async def press(
    client: Client, path: str, typed: Mapping[str, str] = _NOTHING, about: Mapping[str, str] = _NOTHING
) -> Look:
    """Send a form with what was typed. `about` is the query of its address."""
    target = f"/ui{path}" + (f"?{urlencode(about)}" if about else "")
    return Look(await client.send("POST", target, urlencode(typed).encode()))
