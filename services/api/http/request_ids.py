"""The id of a request: by it, callers find what they asked for in the logs and in the audit.

A caller may bring one in `X-Request-Id`. In the place of none, of several and of a malformed one comes one of ours, and
theirs is told nowhere. The answer bears the id in the same header, a problem document as `requestId`.
"""

import os
import re
from contextvars import ContextVar, Token
from typing import Any

from structlog.contextvars import STRUCTLOG_KEY_PREFIX

REQUEST_ID_HEADER = "x-request-id"
_VALID = re.compile(r"[A-Za-z0-9._~:+=/\-]{1,128}")
_BYTES = 16
# structlog finds it by its name and puts it into each line. To bind it there would take ten times as long.
_current: ContextVar[str] = ContextVar(f"{STRUCTLOG_KEY_PREFIX}request_id", default="")


def current_request_id() -> str:
    """The id of this task's request; `""` if it has none."""
    return _current.get()


def bear_request_id(scope: Any) -> Token[str]:
    """Choose the id of a request. This task and its log lines have it until `drop_request_id`."""
    given = sole_header(scope, REQUEST_ID_HEADER)
    return _current.set(given if _VALID.fullmatch(given) else os.urandom(_BYTES).hex())


def drop_request_id(token: Token[str]) -> None:
    """Reset the id of the request."""
    _current.reset(token)


def sole_header(scope: Any, name: str) -> str:
    """The value of a header that occurs once in a request; `""` for none and for several."""
    found = header_values(scope, name.encode())
    return found[0] if len(found) == 1 else ""


def header_values(scope: Any, name: bytes) -> list[str]:
    """All values of a header, given in lower case as the server passes it on. Litestar's object of all headers costs
    ten times as much."""
    return [str(value, "latin-1") for header, value in scope["headers"] if header == name]


def header_text(header: str) -> str:
    """A header as its sender wrote it: HTTP reads Latin-1, but programs write UTF-8."""
    return header.encode("latin-1", "replace").decode("utf-8", "replace")
