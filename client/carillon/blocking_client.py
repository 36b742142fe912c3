"""The client for synchronous programs: one object for a deployment, with its connections behind it."""

from types import TracebackType
from typing import Self

from carillon.blocking_runtime import BlockingRuntime
from carillon.calls import Sync, run
from carillon.clients import Resources
from carillon.runtimes import Runtime


class Carillon(Resources[Sync]):
    """Asks the deployment at `base_url`. Used by many threads at once, and closed at the end. After a fork,
    a process opens connections of its own.

    `token` is a service's; `user` instead names a person by e-mail address, which is believed only from a trusted
    proxy. `timeout_seconds` bounds each attempt (for a file: each standstill), `attempts` the number of them for one
    call, `connections` how many are underway at once.

    Raises:
        ValueError: an argument makes no sense.
    """

    def _make_runtime(self) -> Runtime:
        return BlockingRuntime()

    def close(self) -> None:
        """Wait for the calls in flight and close the connections; a later call raises `RuntimeError`."""
        run(self._transport.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
