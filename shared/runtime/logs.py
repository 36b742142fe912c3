"""Structured logs: a fixed phrase and fields, one line each, on stderr.

`get(__name__).info("batch produced", records=5000)` writes the line, and everything logged inside `bound(job_id=...)`
bears that field too, also across awaits and in tasks started there. The libraries' own logs (uvicorn, aiokafka,
aio_pika, pymongo) take the same way out. Passwords in URLs are masked in every field, tracebacks included.
"""

import logging
import sys
from contextlib import AbstractContextManager
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from shared.runtime.settings import LogSettings, without_secrets

# They say at INFO what our own lines say better: each connection, each rebalance, each start.
CHATTY = ("aio_pika", "aiokafka", "aiormq", "asyncio", "asyncpg", "litestar", "pymongo", "uvicorn")


def get(name: str) -> structlog.stdlib.BoundLogger:
    """The logger of a module."""
    return structlog.stdlib.get_logger(name)


def bound(**fields: Any) -> AbstractContextManager[None]:
    """Add these fields to every line that is logged inside the block."""
    return cast("AbstractContextManager[None]", structlog.contextvars.bound_contextvars(**fields))


def set_up(settings: LogSettings, *, service: str = "", out: TextIO | None = None) -> None:
    """Send every log of this process to `out` (stderr). Called once at the start; a later call replaces the first.

    `service` names the process in every line.
    """
    target = out or sys.stderr
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared, rendering = _shared(service), _rendering(settings, target)
    # Our own lines do not take the way through the standard library, which costs three times as much.
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
    """Writes lines; the name goes into each."""

    def __init__(self, out: TextIO, name: str) -> None:
        super().__init__(out)
        self.name = name


def _shared(service: str) -> list[Processor]:
    def named(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        if service:
            event.setdefault("service", service)
        return event

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        named,
    ]


def _rendering(settings: LogSettings, out: TextIO) -> list[Processor]:
    terminal = out.isatty()
    as_console = settings.format == "console" or (settings.format == "auto" and terminal)
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=terminal, exception_formatter=structlog.dev.plain_traceback)
        if as_console
        else structlog.processors.JSONRenderer(_as_json)
    )
    return [
        structlog.processors.format_exc_info,
        _masked,
        renderer,
    ]


def _as_json(event: EventDict, **_: Any) -> str:
    return msgspec.json.encode(event, enc_hook=repr).decode()


def _masked(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    for key, value in event.items():
        text = value if isinstance(value, str) else str(value) if isinstance(value, BaseException) else ""
        if "://" in text:
            event[key] = without_secrets(text)
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
