"""The words, links and fields of each page of the dashboard."""

import re
from html.parser import HTMLParser

from tests.recorded.recorder import Recording, headers_text
from tests.recorded.scenario import Lived, Stepping
from tests.recorded.world import World
from tests.security.tenants import ADMIN
from tests.services.api.http.pages.addresses import address_of, page_routes

_BLOCKS = {
    "p",
    "div",
    "li",
    "tr",
    "h1",
    "h2",
    "h3",
    "h4",
    "form",
    "table",
    "section",
    "header",
    "footer",
    "nav",
    "dt",
    "dd",
    "pre",
    "option",
    "legend",
    "label",
    "summary",
    "title",
    "ul",
    "main",
}
_HIDDEN = {"script", "style", "svg", "head", "nav"}
_FIELDS = {"input", "select", "textarea", "button"}
_TOLD = (
    "type",
    "name",
    "value",
    "placeholder",
    "required",
    "checked",
    "pattern",
    "min",
    "max",
    "maxlength",
    "aria-label",
    "title",
    "open",
)


class Seen(HTMLParser):
    """Reads a page as lines. All pages have the same menu, whose counts may be of a moment ago: one page shows it."""

    def __init__(self, *, menu: bool) -> None:
        super().__init__()
        self._unseen = _HIDDEN - {"nav"} if menu else _HIDDEN
        self.lines: list[str] = [""]
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value if value is not None else "" for name, value in attrs}
        if tag in self._unseen:
            self._hidden += 1
        if self._hidden:
            return
        if tag in _BLOCKS or tag in _FIELDS:
            self.lines.append("")
        if tag in {"td", "th"}:
            self._add(" | ")
        if tag == "form":
            self._add(f"[form {given.get('method', 'get')} {given.get('action', '')}]")
        if tag == "a" and "href" in given:
            self._add(f"[{given['href']}] ")
        if tag in _FIELDS:
            self._add(f"[{tag}{''.join(f' {key}={given[key]!r}' for key in _TOLD if key in given)}] ")
        if tag == "option":
            self._add(f"({'x' if 'selected' in given else ' '} {given.get('value', '')}) ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            self._hidden -= 1
        elif tag in _BLOCKS and not self._hidden:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self._add(re.sub(r"\s+", " ", data))

    def _add(self, text: str) -> None:
        self.lines[-1] += text

    @property
    def text(self) -> str:
        return "\n".join(line for each in self.lines if (line := re.sub(r" +", " ", each).strip()))


def seen(body: bytes, *, menu: bool = False) -> str:
    """The words, links and fields of a page."""
    page = Seen(menu=menu)
    page.feed(body.decode())
    return re.sub(r"(?m)^(\[/ui[^]]*\] [A-Z][a-z ]+) \d+$", r"\1", page.text) if menu else page.text


async def record_pages(world: World, lived: Lived, recording: Recording) -> None:
    """Each page of what the scenario made, as an admin sees it; and some as they are where nothing is."""
    admin = Stepping(world.app, ADMIN)
    admin.clock = world.clock
    for route in page_routes(world.rooms):
        address = address_of(route, lived.made)
        reply = await admin.get(address)
        lines = [f"GET {address}", f"--> {reply.status}", *headers_text(reply.headers)]
        html = reply.headers.get("content-type", "").startswith("text/html")
        lines.append(seen(reply.body, menu=not route.path.strip("/")) if html else f"({len(reply.body)} bytes)")
        recording.add(
            f"pages/{route.path.strip('/').replace('/', '_').replace(':str', '') or 'start'}.txt", "\n".join(lines)
        )
