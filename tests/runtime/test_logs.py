"""Every log line of a process, ours or a library's, leaves by one way, with its fields and without passwords."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from shared.runtime import logs
from shared.runtime.server_settings import BlobSettings
from shared.runtime.settings import LogSettings


@pytest.fixture
def out() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in logs.CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET)
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_a_phrase_and_fields(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), service="worker", out=out)
    structlog.get_logger("some.module").info("batch produced", records=5000)
    (line,) = lines(out)
    timestamp = line.pop("timestamp")
    assert timestamp.endswith("Z")
    assert line == {
        "event": "batch produced",
        "level": "info",
        "logger": "some.module",
        "records": 5000,
        "service": "worker",
    }


async def test_bound_fields_follow_the_work_into_tasks(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)

    async def work() -> None:
        structlog.get_logger(__name__).info("inside")

    with structlog.contextvars.bound_contextvars(job_id="j", batch_id="j/1"):
        await asyncio.create_task(work())
    structlog.get_logger(__name__).info("outside")
    inside, outside = lines(out)
    assert (inside["job_id"], inside["batch_id"]) == ("j", "j/1")
    assert "job_id" not in outside


def test_libraries_take_the_same_way_and_only_warn(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)
    with structlog.contextvars.bound_contextvars(job_id="j"):
        logging.getLogger("aiokafka.producer").warning("Got %d errors", 3)
    logging.getLogger("uvicorn.error").info("Started")
    (line,) = lines(out)
    assert (line["event"], line["logger"], line["job_id"]) == ("Got 3 errors", "aiokafka.producer", "j")


def test_debug_shows_what_libraries_say_too(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json", level="debug"), out=out)
    logging.getLogger("aio_pika.connection").debug("hello")
    assert [line["event"] for line in lines(out)] == ["hello"]


def test_lines_below_the_level_are_dropped(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json", level="warning"), out=out)
    structlog.get_logger(__name__).info("no")
    structlog.get_logger(__name__).warning("yes")
    assert [line["event"] for line in lines(out)] == ["yes"]


def test_no_field_and_no_traceback_shows_a_password(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)
    url = "amqp://guest:s3cret@host/v"
    try:
        raise ConnectionError(f"cannot reach {url}")
    except ConnectionError as error:
        structlog.get_logger(__name__).exception("unreachable", url=url, error=error)
        logging.getLogger("aiormq").warning("lost %s", url)
    assert "s3cret" not in out.getvalue()
    assert "Traceback" in lines(out)[0]["exception"]
    assert "amqp://guest:***@host/v" in lines(out)[0]["url"]


def test_newlines_in_values_do_not_break_lines(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)
    structlog.get_logger(__name__).info("odd", value="a\nb", other=object)
    assert lines(out)[0]["value"] == "a\nb"


def test_console_is_for_people_and_auto_is_json_off_a_terminal(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="console"), out=out)
    try:
        raise ValueError("why")
    except ValueError:
        structlog.get_logger(__name__).exception("told", job_id="j")
    assert "told" in out.getvalue()
    assert "ValueError: why" in out.getvalue()
    assert not out.getvalue().startswith("{")
    out.truncate(out.seek(0))
    logs.set_up(LogSettings(format="auto"), out=out)
    structlog.get_logger(__name__).info("told")
    assert lines(out)[0]["event"] == "told"


HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x9b2J\u202e"


def test_no_text_of_a_stranger_controls_the_terminal(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="console"), out=out)
    structlog.get_logger(__name__).info("request answered", path=f"/{HOSTILE}", listed=[HOSTILE])
    structlog.get_logger(__name__).info(f"two\nlines {HOSTILE}")
    logging.getLogger("uvicorn.error").warning("odd: %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        structlog.get_logger(__name__).exception("failed")
    written = out.getvalue()
    assert all(character.isprintable() or character in "\n\t" for character in written)
    assert r"\x1b[2J" in written and r"two\nlines" in written
    assert "Traceback" in written


def test_a_long_text_is_cut_and_what_is_left_shows_no_password(out: io.StringIO) -> None:
    """Wherever the cut falls: no half of a password stays."""
    logs.set_up(LogSettings(format="json"), out=out)
    url = "amqp://guest:s3cret@host/v "
    for before in range(len(url)):
        structlog.get_logger(__name__).info(
            "long", text="x" * before + url * 10_000, other=[url * 10_000], mapped={"url": url}
        )
    assert "s3c" not in out.getvalue()
    for line in lines(out):
        assert 10_000 < len(line["text"]) <= logs.LONGEST_TEXT + 3
        assert line["mapped"] == {"url": "amqp://guest:***@host/v "}


def test_a_section_of_settings_in_a_field_shows_no_secret(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)
    structlog.get_logger(__name__).info("odd", settings=BlobSettings(secret_key="s3cret"))
    assert "s3cret" not in out.getvalue()
