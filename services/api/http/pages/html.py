"""Templates, answers in HTML, and the files that pages need.

Everything that a template writes is escaped. A name that a template uses and that nobody gave is an error.
"""

import asyncio
import gzip
import hashlib
import re
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from markupsafe import Markup, escape

from services.api.http.pages import pictures
from services.api.http.pages.filters import (
    compact,
    exactly,
    full_stop,
    instant,
    number,
    percent,
    pretty,
    rate,
    read_time,
    size,
    span,
    things,
    with_query,
    zone_name,
)
from services.api.http.pages.visits import FORM_BYTES, address
from services.api.http.rights import EVERYBODY
from shared.domain.console.audit import REASON_CHARACTERS, ends_something

ROOT = "/ui"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "vary": "cookie, hx-request, accept-encoding",
}
_ROOMS = Path(__file__).parents[2]
_DIGEST_CHARACTERS = 16
_COMPRESSED_BYTES = 1_000
_LONG_BYTES = 50_000  # what takes a millisecond or more to be compressed
_LEVEL = 5
_CELL = re.compile(r"<td\b")
_BACKTICKS = re.compile(r"`([^`]+)`")

_ASSETS = Path(__file__).parent / "assets"
_TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FILE_DIGEST_CHARACTERS = 12
_KEPT = {"cache-control": "public, max-age=31536000, immutable", "vary": "accept-encoding"}
_PACKED = _KEPT | {"content-encoding": "gzip"}


class PageFiles:
    """`/ui/files/…`: styles, scripts and icons. A file's address has its digest, so a browser keeps it for a year.
    Each is compressed once."""

    def __init__(self) -> None:
        self._contents: dict[str, bytes] = {}
        self._packed: dict[str, bytes] = {}
        self._names: dict[str, str] = {}
        for file in _ASSETS.iterdir():
            stem, _, kind = file.name.rpartition(".")
            if kind not in _TYPES:
                continue
            content = file.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:_FILE_DIGEST_CHARACTERS]
            name = f"{stem}.{digest}.{kind}"
            self._contents[name], self._names[file.name] = content, name
            self._packed[name] = gzip.compress(content, mtime=0)

    def name(self, file: str) -> str:
        """The name of a file in its address. Raises `KeyError` for an unknown file."""
        return self._names[file]

    def handler(self) -> HTTPRouteHandler:
        async def send_file(request: Request[Any, Any, Any], name: FromPath[str]) -> Response[Any]:
            content = self._contents.get(name)
            if content is None:
                return Response(b"", status_code=HTTPStatus.NOT_FOUND, media_type="text/plain")
            kind, headers = _TYPES[name.rpartition(".")[2]], _KEPT
            if "gzip" in request.headers.get("accept-encoding", ""):
                content, headers = self._packed[name], _PACKED
            return Response(content, media_type=kind, headers=headers)

        return page_handler("/files/{name:str}", "GET", send_file)


def page_handler(path: str, method: Any, answer: Any, *, most_bytes: int = FORM_BYTES) -> HTTPRouteHandler:
    """The route below `/ui` that `answer` serves, for everybody."""
    return HTTPRouteHandler(
        f"{ROOT}{path}".rstrip("/"),
        http_method=[method],
        opt={"who": EVERYBODY},
        request_max_body_size=most_bytes,
        status_code=HTTPStatus.OK,
    )(answer)


def load_templates(page_files: PageFiles, *, demands_reasons: bool) -> Environment:
    """The templates of all subjects: `jobs/job.html` is in `services/api/jobs/pages`, and `frame/…` in this folder."""
    rooms = {room.name: FileSystemLoader(room / "pages") for room in _ROOMS.iterdir() if (room / "pages").is_dir()}
    rooms["frame"] = FileSystemLoader(Path(__file__).parent / "templates")
    templates = Environment(
        loader=PrefixLoader(rooms), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for each in (
        number, compact, rate, percent, size, span, instant, pretty, read_time, exactly, zone_name, full_stop, things,
    ):  # fmt: skip
        templates.filters[each.__name__] = each
    for name in ("stacked_bar", "area", "columns", "day_strip"):
        templates.globals[name] = getattr(pictures, name)
    templates.filters["label_cells"] = _label_cells
    templates.filters["code_words"] = _code_words
    templates.globals |= {"file": page_files.name, "address": address, "with_query": with_query}
    templates.globals["needs_reason"] = partial(_needs_reason, demands_reasons)
    templates.globals |= {"percent": percent, "reason_characters": REASON_CHARACTERS}
    templates.globals["ui"] = templates.get_template("frame/parts.html").module
    return templates


def _needs_reason(demands_reasons: bool, action: str) -> bool:
    """Whether a form with this address needs a reason: the address ends with the act's verb."""
    return demands_reasons and ends_something(urlsplit(action).path.rpartition("/")[2])


def _code_words(text: str) -> Markup:
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it is escaped


def _label_cells(row: Markup, heads: Sequence[str]) -> Markup:
    """The cells of a row, each with its column's head. A head in HTML labels none."""
    left = iter(heads)
    return Markup(_CELL.sub(lambda _: "<td" + _attributes_under(next(left, None)), row))  # noqa: S704 - it is a row


def _attributes_under(head: str | None) -> str:
    if head is None or isinstance(head, Markup):
        return ""
    kind = ' class="number"' if head.startswith("#") else ""
    return f' data-label="{escape(head.removeprefix("#"))}"{kind}'


def answer_html(html: str, status: HTTPStatus = HTTPStatus.OK) -> Response[bytes]:
    return Response(html.encode(), status_code=status, media_type="text/html", headers=_HEADERS)


async def compress(request: Request[Any, Any, Any], answer: Response[bytes]) -> Response[bytes]:
    """The same answer, compressed if the browser accepts that; a long one in a thread, because compressing would block
    the event loop."""
    content = answer.content
    if len(content) <= _COMPRESSED_BYTES or "gzip" not in request.headers.get("accept-encoding", ""):
        return answer
    pressed = partial(gzip.compress, content, _LEVEL, mtime=0)
    answer.content = await asyncio.to_thread(pressed) if len(content) > _LONG_BYTES else pressed()
    answer.set_header("content-encoding", "gzip")
    return answer


def digest_of(html: str) -> str:
    """A digest that differs between two states of a page."""
    return hashlib.sha256(html.encode()).hexdigest()[:_DIGEST_CHARACTERS]
