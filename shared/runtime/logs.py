"""Structured logs: a fixed phrase and fields, one line each, on stderr.

`get(__name__).info("batch produced", records=5000)` writes the line; every line inside `bound(job_id=...)` has that
field too, also across awaits and in tasks started there. The logs of libraries (uvicorn, aiokafka, aio_pika, pymongo)
take the same way. Secrets are masked in every field and traceback, long texts are cut, and no control character of a
text reaches a terminal.
"""

import logging
import sys
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Any, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from shared.runtime.private import may_hold_secrets, without_secrets
from shared.runtime.settings import LogSettings

# At INFO, these libraries repeat Carillon's own lines: each connection, each rebalance, each start.
CHATTY = ("aio_pika", "aiokafka", "aiormq", "asyncio", "asyncpg", "litestar", "pymongo", "uvicorn")

LONGEST_TEXT = 16_384
MOST_ITEMS = 100

_CONTROLS = {
    code: chr(code).encode("unicode_escape").decode()
    for code in (
        *range(0x20),
        *range(0x7F, 0xA0),
        0x061C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    )
}
_IN_TRACEBACKS = {code: text for code, text in _CONTROLS.items() if chr(code) not in "\t\n"}


def set_up(settings: LogSettings, *, service: str = "", out: TextIO | None = None) -> None:
    """Send every log of this process to `out` (stderr). A later call replaces the first.

    `service` names the process in every line.
    """
    target = out or sys.stderr
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared, rendering = _common_processors(service), _output_processors(settings, target)
    # Carillon's lines avoid the standard library, which costs three times as much.
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda name="": _Named(target, name),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
    meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[meta, *rendering]))
    _route(handler, level)


class _Named(structlog.WriteLogger):
    def __init__(self, out: TextIO, name: str) -> None:
        super().__init__(out)
        self.name = name


def _common_processors(service: str) -> list[Processor]:
    def add_service(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        if service:
            event.setdefault("service", service)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        add_service,
    ]


def _output_processors(settings: LogSettings, out: TextIO) -> list[Processor]:
    terminal = out.isatty()
    as_console = settings.format == "console" or (settings.format == "auto" and terminal)
    rendering: list[Processor] = (
        [
            _escape_controls,
            structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback),
        ]
        if as_console
        else [structlog.processors.JSONRenderer(lambda event, **_: msgspec.json.encode(event, enc_hook=repr).decode())]
    )
    return [structlog.processors.format_exc_info, _mask_secrets, *rendering]


def _mask_secrets(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        # Nearly all values; these checks are a third of a line's cost.
        if value.__class__ is str and len(value) <= LONGEST_TEXT and not may_hold_secrets(value):
            continue
        event[key] = _safe(value)
    return event


def _safe(value: Any) -> Any:
    match value:
        case str():
            return _safe_text(value)
        case None | bool() | int() | float() | datetime():
            return value
        case bytes():
            return value[:LONGEST_TEXT]
        case Mapping():
            return {key: _safe(inner) for key, inner in islice(value.items(), MOST_ITEMS)}
        case list() | tuple() | set() | frozenset():
            return [_safe(inner) for inner in islice(value, MOST_ITEMS)]
        case _:
            return _safe_text(repr(value))


def _safe_text(text: str) -> str:
    """The text without secrets; a long text keeps its beginning and end."""
    if len(text) <= LONGEST_TEXT:
        return without_secrets(text)
    # Masked with some text around it, so that no cut separates a password from the text that marks it.
    half, seen = LONGEST_TEXT // 2, LONGEST_TEXT
    head, tail = without_secrets(text[:seen])[:half], without_secrets(text[-seen:])[-half:]
    return f"{head} … {tail}"


def _escape_controls(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Let no text move a terminal's cursor, change its title, or look like another line. Only a traceback has several
    lines."""
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[key] = value.translate(_IN_TRACEBACKS if key == "exception" else _CONTROLS)
    return event


def _route(handler: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in CHATTY:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(level if level <= logging.DEBUG else max(level, logging.WARNING))
