"""Templates, answers in HTML, the files that pages need, and how values are written: numbers, times, spans and JSON.

A template escapes everything that it writes. An unknown value is a dash.
"""

import asyncio
import gzip
import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from jinja2 import Environment, FileSystemLoader, PrefixLoader, StrictUndefined
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from markupsafe import Markup, escape

from services.api.http.pages import pictures
from services.api.http.pages.visits import FORM_BYTES, address
from services.api.http.rights import EVERYBODY
from shared.audience.rules.zones import REST
from shared.console.rules.audit import REASON_CHARACTERS, ends_something
from shared.core.time_zones import time_zone
from shared.jobs.rules.events import per_unit

UNKNOWN = "\N{EN DASH}"
_OFFSET = re.compile(r"([+-])(\d\d)(\d\d)")
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SIZES = ("B", "kB", "MB", "GB", "TB")
_SCALES = ((10**9, " G"), (10**6, " M"), (10**3, " k"))
_MOST_SECONDS = 253_402_300_799  # of the year 9999: what is more counts nanoseconds


def number(value: Any) -> str:
    """`1234567` as `1,234,567`."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def compact(value: float | None) -> str:
    """`1234567` as `1.23 M`: three digits at most."""
    if value is None:
        return UNKNOWN
    for least, unit in _SCALES:
        if abs(value) >= least:
            return f"{value / least:.3g}{unit}"
    return f"{value:.3g}"


def rate(per_second: float | None) -> str:
    """`12` as `12 a second`, `0.0457` as `2.74 a minute`."""
    if per_second is None:
        return UNKNOWN
    count, unit = per_unit(per_second)
    return f"{compact(count)} a {unit}"


def percent(part: float, whole: float) -> str:
    """A share in per cent. Only zero is written as 0 %, and only the whole as 100 %."""
    if not whole:
        return UNKNOWN
    share = 100 * part / whole
    if 0 < share < 0.1:
        return "< 0.1 %"
    if 99.9 < share < 100:
        return "> 99.9 %"
    return f"{share:.3g} %"


def size(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    for unit in _SIZES:
        if abs(value) < 1_000 or unit == _SIZES[-1]:
            return f"{value:.3g} {unit}"
        value /= 1_000
    return UNKNOWN


def in_zone(instants: Sequence[str], timezone: str) -> list[tuple[str, str]]:
    """Each instant, and what the clocks of that zone show then, `""` without a zone."""
    if not timezone:
        return [(instant, "") for instant in instants]
    zone = time_zone(timezone)
    return [(instant, f"{known_time(instant).astimezone(zone):%a %d %b %H:%M}") for instant in instants]


def span(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms" if seconds else "0 s"
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    left, parts = int(seconds), list[str]()
    for unit_seconds, unit in _UNITS:
        if left >= unit_seconds or parts:
            parts.append(f"{left // unit_seconds} {unit}")
            left %= unit_seconds
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if not part.startswith("0 ")) or "0 s"


def read_time(value: Any) -> datetime | None:
    """An instant of the API: RFC 3339, or nanoseconds as in Marathon's fields. `None` for no instant, and for one
    outside the calendar, because callers choose some of them."""
    if not value:
        return None
    try:
        if isinstance(value, int | float):
            return datetime.fromtimestamp(value / 1e9 if abs(value) > _MOST_SECONDS else value, UTC)
        return datetime.fromisoformat(str(value)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def known_time(value: Any) -> datetime:
    """As `read_time`, for an instant that the API always gives."""
    at = read_time(value)
    assert at is not None
    return at


def instant(value: Any, shape: str = "short") -> Markup:
    """An instant in UTC. A script converts it to the reader's zone; hovering shows the exact one. `shape` is `short`
    (with the date unless it is today), `time`, `full`, or `ago` (the distance from now)."""
    at = read_time(value)
    if at is None:
        return Markup('<span class="none">{}</span>').format(UNKNOWN)
    exact = f"{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1_000:03} UTC"
    text = {"time": f"{at:%H:%M:%S}", "full": f"{at:%Y-%m-%d %H:%M:%S} UTC"}.get(shape, f"{at:%Y-%m-%d %H:%M}")
    return Markup('<time datetime="{}" title="{}" data-shape="{}">{}</time>').format(
        at.isoformat().replace("+00:00", "Z"), exact, shape, text
    )


def zone_name(zone: str) -> str:
    """The name of a zone: `UTC+05:45` for `+0545`. A value that is no offset stays as it is."""
    offset = _OFFSET.fullmatch(zone)
    if offset is None:
        return "no zone" if zone == REST else zone
    sign = offset[1].replace("-", "\N{MINUS SIGN}")
    return f"UTC{sign}{offset[2]}:{offset[3]}"


def things(count: int, thing: str) -> str:
    """A number with its noun, as in "1 event" and "1,200 events"."""
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def full_stop(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def pretty(value: Any) -> str:
    """JSON with line breaks. Text that contains JSON is shown as that JSON; deeply nested JSON stays as it is."""
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()  # a `Raw` as it came
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError):
        return str(value)


def exactly(text: str) -> str:
    """The `pattern` of a field that accepts only this text."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\u{{{ord(each):x}}}" for each in text)


def query_of(**given: Any) -> str:
    """A query of the parameters that have a value; `""` if none has."""
    left = {name: value for name, value in given.items() if value not in (None, "")}
    return f"?{urlencode(left)}" if left else ""


def with_query(given: dict[str, Any], **changes: Any) -> Markup:
    """A query with these parameters, some changed; those without a value are left out."""
    return escape(query_of(**given | changes) or "?")


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
