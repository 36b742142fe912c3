"""The `carillon` command with a watch on its event loop: `python -m tests.security.watched FILE SERVICE`.

The program runs as it is. Around it stands a timer of its loop, which notes in the file how much processor time the
loop's thread took, and how much time passed, between two beats, where that was long.
"""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

from services import cli
from services.wiring import process

BEAT_SECONDS = 0.01
_LONG_SECONDS = 0.03

_serve = process.serve


class Watch:
    """A timer that calls itself: what comes between two of its calls is at most a beat and one turn of the loop."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._loop = asyncio.get_running_loop()
        self._begin()

    def _begin(self) -> None:
        self._processor, self._time = time.thread_time(), time.monotonic()
        self._loop.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        processor, passed = time.thread_time() - self._processor, time.monotonic() - self._time
        if passed > _LONG_SECONDS:
            self._file.write(f"{self._time} {processor} {passed}\n")
        self._begin()


async def watched(*args: Any, **options: Any) -> int:
    """What the command runs, under the watch."""
    Watch(Path(sys.argv[1]))
    return await _serve(*args, **options)


if __name__ == "__main__":
    process.serve = watched
    cli.main([sys.argv[2]], prog_name="carillon")
