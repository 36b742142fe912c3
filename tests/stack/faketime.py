"""Debian's libfaketime: one process with a wall clock of its own, which a test may move while the process runs.

Its monotonic clock stays true, as it does on a machine whose wall clock is wrong.
"""

from pathlib import Path

from tests.stack.endpoints import MissingPart
from tests.stack.install import need_program
from tests.stack.server import Missing


class WallClock:
    """A wall clock that is off, kept in a file that the process reads whenever it asks for the time."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def set(self, seconds: float) -> None:
        """Be so many seconds ahead of the true time from now on; less than 0 is behind."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+g}\n")
        new.rename(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """What a process is started with to have this clock. Raises `MissingPart`."""
        return {
            "LD_PRELOAD": str(_library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def _library() -> Path:
    try:
        need_program("faketime", "faketime")
    except Missing as reason:
        raise MissingPart(f"faketime: {reason}") from None
    found = sorted(Path("/usr/lib").glob("**/faketime/libfaketimeMT.so.1"))
    if not found:
        raise MissingPart("faketime: the program is there, but not libfaketimeMT.so.1")
    return found[0]
