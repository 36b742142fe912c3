"""A page as its reader has it: texts, links, and fields with what stands in them; and forms as browsers send them."""

from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from tests.services.api.client import Client, Reply
from tests.services.api.conftest import House

FORM = "application/x-www-form-urlencoded"
BOUNDARY = "of-the-test"


class Shown(HTMLParser):
    """What a page shows. `fields` has the values by the names of fields, `wrong` what stands beside them in red."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fields: dict[str, list[str]] = {}
        self.links: list[str] = []
        self.actions: list[str] = []
        self.scripts: list[str] = []
        self.wrong: list[str] = []
        self._text: list[str] = []
        self._open: list[tuple[str, dict[str, str | None]]] = []
        self._area = ""
        self.feed(html)

    @property
    def text(self) -> str:
        return " ".join("".join(self._text).split())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        assert "style" not in given
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag == "form":
            self.actions.append(given.get("action") or "")
        if tag == "script":
            self.scripts.append(given.get("src") or "")
        if "wrong" in (given.get("class") or "").split():
            self.wrong.append("")
        if tag == "input" and (given.get("type") not in {"checkbox", "radio"} or "checked" in given):
            self.fields.setdefault(given.get("name") or "", []).append(given.get("value") or "")
        if tag == "textarea":
            self._area = given["name"] or ""
            self.fields[self._area] = [""]
        if tag not in {"input", "meta", "link", "br", "img"}:
            self._open.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag
        if tag == "textarea":
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area][-1] += data
        elif self._open and self._open[-1][0] not in {"script", "style", "title"}:
            self._text.append(data)
        if any("wrong" in (given.get("class") or "").split() for _, given in self._open):
            self.wrong[-1] += data


async def look(client: Client, path: str, status: int = 200) -> Shown:
    """The page at this path below `/ui`."""
    reply = await client.get(f"/ui{path}")
    assert reply.status == status, (reply.status, reply.body)
    return Shown(reply.body.decode())


async def send_form(client: Client, path: str, fields: dict[str, Any], **headers: str) -> Reply:
    """Send what was typed."""
    body = urlencode(fields, doseq=True).encode()
    return await client.post(f"/ui{path}", body, content_type=FORM, **headers)


async def send_file(client: Client, path: str, fields: dict[str, str], content: bytes) -> Reply:
    """Send what was typed, and a file."""
    parts = [f'content-disposition: form-data; name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts.append(
        b'content-disposition: form-data; name="file"; filename="u.csv"\r\ncontent-type: text/csv\r\n\r\n' + content
    )
    body = b"".join(b"--%s\r\n%s\r\n" % (BOUNDARY.encode(), part) for part in parts)
    body += b"--%s--\r\n" % BOUNDARY.encode()
    return await client.post(f"/ui{path}", body, content_type=f"multipart/form-data; boundary={BOUNDARY}")


async def viewer_of(house: House, *app_ids: str) -> Client:
    """A person who may look at these apps."""
    email = f"viewer-{app_ids[0][-12:]}@example.com"
    made = await house.admin.post("/users", {"email": email, "roles": {f"app/{id}": "viewer" for id in app_ids}})
    assert made.status == 201, made.body
    return house.admin.someone(email)
