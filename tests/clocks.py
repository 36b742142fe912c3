"""A clock for tests to set."""

from datetime import datetime, timedelta

from shared.core.instants import EPOCH


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, start_ns: int = 1_800_000_000_000_000_000) -> None:
        self._ns = start_ns

    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=self._ns // 1_000)

    def now_ns(self) -> int:
        return self._ns

    def advance(self, seconds: float) -> None:
        """Move on; never back. Raises `ValueError`."""
        if seconds < 0:
            raise ValueError("a clock does not go back")
        self._ns += round(seconds * 1e9)
