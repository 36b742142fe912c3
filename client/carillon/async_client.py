"""The client for asyncio: one object for a deployment, with its connections behind it."""

from types import TracebackType
from typing import Self

from carillon.calls import Async
from carillon.clients import Resources
from carillon.runtimes import Runtime


class AsyncCarillon(Resources[Async]):
    """Asks the deployment at `base_url`. Used by many tasks of one event loop at once, and closed at the end.

    `token` is a service's; `user` instead names a person by e-mail address, which is believed only from a trusted
    proxy. `timeout_seconds` bounds each attempt (for a file: each standstill), `attempts` the number of them for one
    call, `connections` how many are underway at once.

    Raises:
        ValueError: an argument makes no sense.
    """

    def _make_runtime(self) -> Runtime:
        from carillon.async_runtime import AsyncRuntime  # who blocks needs no asyncio

        return AsyncRuntime()

    async def close(self) -> None:
        """Wait for the calls in flight and close the connections; a later call raises `RuntimeError`."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
