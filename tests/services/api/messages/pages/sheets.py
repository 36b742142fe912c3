"""A page as a test reads it: its words, where its links and forms lead, and what is typed in."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urlencode

from tests.services.api.client import Client, Reply

_FORM = "application/x-www-form-urlencoded"


@dataclass
class Sheet:
    """What a page shows. `typed` has the values of its fields, `wrong` what stands beside one that was refused."""

    status: int
    html: str
    words: str = ""
    links: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    typed: dict[str, str] = field(default_factory=dict)
    wrong: dict[str, str] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)

    def does(self, act: str) -> bool:
        """Whether there is a form or a link that ends so."""
        return any(target.partition("?")[0].endswith(act) for target in self.actions + self.links)


class _SheetReader(HTMLParser):
    def __init__(self, sheet: Sheet) -> None:
        super().__init__()
        self._sheet = sheet
        self._wrong = self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._sheet.tags.append(tag)
        self._wrong = given.get("id", "").removeprefix("wrong-") if given.get("class") == "wrong" else ""
        if tag == "a":
            self._sheet.links.append(given.get("href", ""))
        if tag == "form":
            self._sheet.actions.append(given.get("action", ""))
        if tag in {"input", "textarea"}:
            self._sheet.typed.setdefault(given.get("name", ""), given.get("value", ""))
        self._area = given.get("name", "") if tag == "textarea" else ""

    def handle_data(self, data: str) -> None:
        self._sheet.words += " " + data
        if self._wrong:
            self._sheet.wrong[self._wrong], self._wrong = data, ""
        if self._area:
            self._sheet.typed[self._area], self._area = data, ""


def read_sheet(reply: Reply) -> Sheet:
    """The page of this answer."""
    sheet = Sheet(reply.status, reply.body.decode())
    _SheetReader(sheet).feed(sheet.html)
    sheet.words = " ".join(sheet.words.split())
    return sheet


async def look(person: Client, path: str) -> Sheet:
    """The page at this path below `/ui`."""
    return read_sheet(await person.get(f"/ui{path}"))


async def send(person: Client, path: str, *also: tuple[str, str], **fields: str) -> Reply:
    """Send a form; `also` are fields whose names Python does not take."""
    content = urlencode([*fields.items(), *also]).encode()
    return await person.post(f"/ui{path}", content, content_type=_FORM)
