"""Nobody stops a process with a text: whoever reads what strangers send takes time in proportion to its length.

Each reader gets hostile texts of several shapes, and reads or refuses them. In the rest it gets each at a length and at
twice that length, and the CPU time of its thread must not grow by much more than twice. A quadratic reader grows by
four.
"""

import io
import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal

import msgspec
import pytest
import structlog

from carillon.calls import next_query
from carillon.errors import CarillonError as ClientError
from carillon.errors import error_of
from services.api.clock import definitions
from services.api.clock.bulk import _key_of
from services.api.http import bodies, paging
from services.api.http.bodies import _elements, _lines
from services.api.http.errors import content, problem_of
from services.api.http.paging import read_key
from services.api.jobs import job_body
from services.api.jobs.job_body import JobBody
from services.api.jobs.templates import TemplateBody
from services.api.messages.suppressions import read_suppression
from services.api.messages.unsubscribing import _read_wish
from shared.accounts.rules.apps import check_app, check_app_name
from shared.accounts.rules.callers import check_email, check_token_name
from shared.audience.rules.audiences import conditions
from shared.audience.rules.csv_cuts import Slicer
from shared.audience.rules.csv_rows import RowReader
from shared.audience.rules.zones import read_zone
from shared.clock.rules.callbacks import Targets
from shared.clock.rules.recurrence import check_cron
from shared.clock.rules.schedules import check_key
from shared.core.errors import CarillonError, Invalid
from shared.core.ids import read_uuid
from shared.core.instants import read_instant
from shared.core.tasks import decode
from shared.drivers.blobs.paths import find_place
from shared.drivers.http.checks import check_headers, check_url
from shared.drivers.http.client import retry_after_seconds
from shared.drivers.http.signing import check_secret
from shared.jobs.rules.jobs import PlanJob
from shared.jobs.rules.mails import is_mailbox
from shared.jobs.rules.mails import printable as printable_line
from shared.jobs.rules.templates import (
    Template,
    Unrenderable,
    check_body,
    check_filled,
    check_json,
    check_name,
    filled_body,
    filled_bytes,
    valueless_tags,
)
from shared.messages.rules.recipients import spellings_of
from shared.messages.rules.suppressions import UnsubscribeTokens
from shared.providers.base import tell
from shared.push.rules.feedback import read as read_feedback
from shared.runtime import logs
from shared.runtime.private import without_secrets
from shared.runtime.settings import LogSettings

pytestmark = pytest.mark.attack

MOST_GROWTH = 3.0
NOTHING_SECONDS = 0.01  # below this the clock tells noise
TRIES = 8
TARGETS = Targets(check_url=partial(check_url, allowed_networks=()))
AT = datetime(2030, 1, 1, tzinfo=UTC)

UNITS = (
    "a://:", "a://a:a@", "://", "secret", "secret='", 'secret = "\\"', "?token=", "&key=a",
    "{{", "}}", "{{a}}", "{", "[", "{}", "[],", '{"a":', "0", "0,", "1e9,", '"a",', "\\u0000",
    "<", "<a>;", "<Error><Code>", "<Message>", '"', "''", "\\", "`", " - at `$", "Expected `a`, got `",
    "\n", "\r\n", "\t", " ", ",", "-", ".", "a.", "a@", "@", "a", "/", "../", "%", "%2f", ":",
    "*/1,", "9-0/", "2026-11-22T", "Mon, ", "NOT", "whsec_", "é", "\U0001f600", "\x1b[2J", "\0",
)  # fmt: skip
LENGTHS = {64 * 1024: UNITS, 512 * 1024: UNITS[:12]}


def as_text(read: Callable[[str], object]) -> Callable[[str], object]:
    return read


def as_json(read: Callable[[bytes], object], *places: str) -> Callable[[str], object]:
    """The text as it is, and as a text of JSON in each of the places of a document."""

    def run(text: str) -> None:
        quoted = json.dumps(text)
        for body in (text, *(place.replace("?", quoted) for place in places)):
            with suppress(CarillonError):
                read(body.encode())

    return run


def in_chunks(feed: Callable[[bytes], object], finish: Callable[[], object], text: str) -> None:
    content_ = text.encode()
    for start in range(0, len(content_), 256 * 1024):
        feed(content_[start : start + 256 * 1024])
    finish()


def csv(text: str) -> None:
    for header in ("", "user\n", 'user\n"'):
        reader = RowReader()
        with suppress(CarillonError):
            in_chunks(reader.feed, reader.finish, header + text)


def slices(text: str) -> None:
    slicer = Slicer(1_000)
    in_chunks(slicer.feed, slicer.finish, "user\n" + text)


def a_template(body: Any, defaults: Any) -> Template:
    return Template(id="t", app_id="a", name="like", locale="en", body=body, defaults=defaults)


def filling(text: str) -> None:
    for template in (a_template({"alert": text}, {}), a_template({text: "{{a}}"}, {"a": text})):
        valueless_tags(template, {})
        check_filled([template], {}, {}, most=10**9, field="template")
        with suppress(Unrenderable):
            filled_bytes(template, {"": text})
            filled_body(template, {})


def nested(text: str) -> None:
    """The longest keys that are allowed, one in the other, over very many leaves."""
    value: Any = [0, "a", None, 0.5] * (len(text) // 16)
    for _ in range(60):
        value = {text[:1_000]: value}
    check_json("context", value)


def leaves(text: str) -> None:
    check_json("context", [text] + [text[index : index + 4] for index in range(0, len(text), 4)])
    check_json("context", {text: text, "list": list(text)})


def told(text: str) -> None:
    content(problem_of(Invalid(text, field=text, value=text)))


def logged(text: str) -> None:
    log = structlog.get_logger("x")
    log.info("request answered", path=text, listed=[text], mapped={text[:9]: text}, body=text.encode())
    logging.getLogger("uvicorn.error").warning("odd: %s", text)
    try:
        raise ValueError(text)
    except ValueError:
        log.exception(text)


READERS: dict[str, Callable[[str], object]] = {
    "masking": without_secrets,
    "log as json": logged,
    "log on a console": logged,
    "template body": as_json(
        lambda body: bodies.read(body, TemplateBody), '{"body":{"a":?}}', "{?:1}", '{"body":{?:{?:1}},"name":?}'
    ),
    "job body": as_json(lambda body: bodies.read(body, JobBody), '{"context":{"a":[?,?]}}', '{"filters":{?:?}}'),
    "list of bodies": as_json(lambda body: list(bodies.read_list(body, TemplateBody)), '[{"name":?},{"body":?}]'),
    "schedule body": as_json(
        lambda body: definitions.read_preview(body, TARGETS),
        "{?:1}", '{"key":?}', '{"misfire":?}', '{"callback":{"type":?}}',
        '{"callback":{"type":"http","data":{"url":?}},"cron":?}',
        '{"callback":{"type":"http","data":{"url":"https://a.example/","payload":?,"headers":{?:?}}},"cron":?}',
        '{"callback":{"type":"http","data":{"url":"https://a.example/"}},"cron":"* * * * *","timezone":?}',
        '{"callback":{"type":"http","data":{"url":"https://a.example/"}},"schedules":[?]}',
        '{"callback":{"type":"http","data":{"url":"https://a.example/"}},"every":1,"labels":{?:?}}',
    ),
    "bulk array": as_json(lambda body: _elements(body, 10), '[{"key":?}]'),
    "bulk lines": lambda text: _lines(text.encode(), 10),
    "key of a bad item": as_json(_key_of, '{"key":?}'),
    "suppression body": as_json(
        lambda body: read_suppression(body, "app", at=AT),
        '{"channel":"mail","address":?}', '{"channel":"sms","address":?}', '{"channel":"other","address":"a","list":?}',
    ),
    "address that is looked for": spellings_of,
    "form of a link": lambda text: _read_wish("application/x-www-form-urlencoded", text.encode()),
    "form in parts": lambda text: _read_wish("multipart/form-data; boundary=b", f"--b\r\n{text}\r\n--b".encode()),
    "kind of a form": lambda text: _read_wish(f"multipart/form-data;{text}", b"--b\r\n\r\na\r\n--b"),
    "token of a link": UnsubscribeTokens([b"key"]).read,
    "feedback record": as_json(
        read_feedback, '{"METADATA":{"jobid":?},"err":{"KEY":?}}', '{"metadata":{"jobId":"j"},"error":?}', "{?:?}"
    ),
    "task": as_json(lambda body: decode(body, PlanJob), '{"type":?}'),
    "json of any depth": nested,
    "json of many texts": leaves,
    "tags of a body": lambda text: check_body({"a": text, "b": [text]}),
    "template name": check_name,
    "filling": filling,
    "problem document": told,
    "csv rows": csv,
    "csv slices": slices,
    "e-mail address": check_email,
    "mailbox": is_mailbox,
    "line of a mail": printable_line,
    "answer of a provider": tell,
    "bundle id": lambda text: check_app("game", text),
    "app name": check_app_name,
    "token name": check_token_name,
    "uuid": lambda text: read_uuid(text, field="id"),
    "filters": lambda text: conditions({"locale": text, text: "a", f"NOT{text}": "a"}),
    "zone of a device": read_zone,
    "timestamp": lambda text: read_instant(text, field="schedules[0]"),
    "cron line": lambda text: check_cron(text, "UTC"),
    "time zone": lambda text: check_cron("* * * * *", text),
    "schedule key": check_key,
    "url": lambda text: check_url(f"https://{text}", allowed_networks=(), field="url"),
    "headers": lambda text: check_headers({"a": text, text: "a"}, "headers"),
    "signing secret": lambda text: check_secret(f"whsec_{text}", "secret"),
    "retry-after": lambda text: retry_after_seconds(text, text, 0),
    "path of a file": lambda text: find_place(f"bucket/{text}", {"bucket"}),
    "idempotency key": lambda text: read_key([text], namespace="n", same=("a", text, text.encode())),
    "template names": job_body.read_names,
    "cursor": lambda text: paging._position(text, str),
    "limit": lambda text: paging._integer(text, paging.MAX_LIMIT, Invalid("limit", field="limit")),
    "link to the next page": next_query,
    "answer of S3": lambda text: error_of(500, f"<Error>{text}".encode()),
}  # fmt: skip

REFUSALS = (CarillonError, ClientError, Unrenderable, msgspec.DecodeError)


def seconds(read: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    with suppress(*REFUSALS):
        read(text)
    return time.thread_time() - began


def growth(read: Callable[[str], object], unit: str, length: int) -> float:
    """How many times as long it takes for a text of twice the length: the least of what was measured, since whatever
    disturbs a measurement only adds to it."""
    text = unit * (length // len(unit.encode()))
    once = twice = float("inf")
    for _ in range(TRIES):
        twice = min(twice, seconds(read, text + text))
        once = min(once, seconds(read, text))
        if twice < max(NOTHING_SECONDS, MOST_GROWTH * once):
            break
    return twice / max(once, NOTHING_SECONDS / MOST_GROWTH)


@contextmanager
def log_of(style: Literal["json", "console"]) -> Iterator[None]:
    """All that is logged inside goes through our own processors, to nowhere."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.set_up(LogSettings(format=style), out=io.StringIO())
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for name in logs.CHATTY:
            logging.getLogger(name).setLevel(logging.NOTSET)
        structlog.reset_defaults()


@pytest.mark.parametrize("name", READERS)
def test_no_hostile_text_is_a_fault_of_ours(name: str) -> None:
    with log_of("console" if "console" in name else "json"):
        for unit in UNITS:
            with suppress(*REFUSALS):
                READERS[name](unit * (min(LENGTHS) // len(unit.encode())))


@pytest.mark.alone
@pytest.mark.parametrize("name", READERS)
def test_twice_the_text_takes_about_twice_the_time(name: str) -> None:
    with log_of("console" if "console" in name else "json"):
        for length, units in LENGTHS.items():
            for unit in units:
                times = growth(READERS[name], unit, length)
                assert times < MOST_GROWTH, f"{unit!r} repeated, {length:,} bytes and twice as many: {times:.1f} times"


@pytest.mark.alone
def test_what_is_quadratic_is_found() -> None:
    """The measure itself: an expression that looks from each place to the end."""
    quadratic = as_text(lambda text: text.count("{") and [text.find("}", place) for place in range(0, len(text), 40)])
    assert growth(quadratic, "{", 256 * 1024) > MOST_GROWTH
