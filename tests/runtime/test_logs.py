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
    logs.get("some.module").info("batch produced", records=5000)
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
        logs.get(__name__).info("inside")

    with logs.bound(job_id="j", batch_id="j/1"):
        await asyncio.create_task(work())
    logs.get(__name__).info("outside")
    inside, outside = lines(out)
    assert (inside["job_id"], inside["batch_id"]) == ("j", "j/1")
    assert "job_id" not in outside


def test_libraries_take_the_same_way_and_only_warn(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)
    with logs.bound(job_id="j"):
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
    logs.get(__name__).info("no")
    logs.get(__name__).warning("yes")
    assert [line["event"] for line in lines(out)] == ["yes"]


def test_no_field_and_no_traceback_shows_a_password(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)
    url = "amqp://guest:s3cret@host/v"
    try:
        raise ConnectionError(f"cannot reach {url}")
    except ConnectionError as error:
        logs.get(__name__).exception("unreachable", url=url, error=error)
        logging.getLogger("aiormq").warning("lost %s", url)
    assert "s3cret" not in out.getvalue()
    assert "Traceback" in lines(out)[0]["exception"]
    assert "amqp://guest:***@host/v" in lines(out)[0]["url"]


def test_newlines_in_values_do_not_break_lines(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="json"), out=out)
    logs.get(__name__).info("odd", value="a\nb", other=object)
    assert lines(out)[0]["value"] == "a\nb"


def test_console_is_for_people_and_auto_is_json_off_a_terminal(out: io.StringIO) -> None:
    logs.set_up(LogSettings(format="console"), out=out)
    try:
        raise ValueError("why")
    except ValueError:
        logs.get(__name__).exception("told", job_id="j")
    assert "told" in out.getvalue()
    assert "ValueError: why" in out.getvalue()
    assert not out.getvalue().startswith("{")
    out.truncate(out.seek(0))
    logs.set_up(LogSettings(format="auto"), out=out)
    logs.get(__name__).info("told")
    assert lines(out)[0]["event"] == "told"
