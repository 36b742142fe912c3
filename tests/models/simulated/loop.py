"""An event loop without time or sockets of its own: whenever nothing can run, somebody else says what happens next."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Calls `idle` whenever all tasks wait, with the seconds until the first timer (`None`: there is none).

    What `idle` does has to let something run: resolve a future, or move `now` to that timer.
    """

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        self.now = 0.0
        super().__init__(_Idle(idle))

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Threads would run when they like: the work is done here and now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is the caller's
            done.set_exception(error)
        return done


class _Idle(selectors.SelectSelector):
    """The loop asks for events, and waits for them only when nothing is ready."""

    def __init__(self, idle: Callable[[float | None], None]) -> None:
        super().__init__()
        self._idle = idle

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout > 0:
            self._idle(timeout)
        return []
