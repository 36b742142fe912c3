"""The native stack: the real servers that the tests run against, without Docker.

`ensure()` starts what does not run on free loopback ports, with data in a temporary folder, and says where it is; what
is healthy is used as it is, so a stack that a person started (`make stack`) serves every test session of the checkout.
Servers outlive whoever started them. What a dead starter left behind is found by its marks
(`services.embedded.processes`) and ended.

Every function here blocks until it is done; a coroutine calls it by `asyncio.to_thread` if its loop must go on
meanwhile.
"""

from tests.stack.control import (
    NAMES,
    Session,
    down,
    down_unused,
    ensure,
    keep,
    kill,
    log_text,
    pause,
    pid,
    restart,
    start,
    status,
    stop,
    unpause,
)
from tests.stack.endpoints import Endpoints, MissingPart

__all__ = [
    "NAMES",
    "Endpoints",
    "MissingPart",
    "Session",
    "down",
    "down_unused",
    "ensure",
    "keep",
    "kill",
    "log_text",
    "pause",
    "pid",
    "restart",
    "start",
    "status",
    "stop",
    "unpause",
]
