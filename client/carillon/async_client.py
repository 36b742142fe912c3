"""The client for asyncio: one object for a deployment, with its connections behind it."""

from types import TracebackType
from typing import Self

from carillon.calls import Async
from carillon.clients import ATTEMPTS, CONNECTIONS, TIMEOUT_SECONDS, Resources, transport_of


class AsyncCarillon(Resources[Async]):
    """Asks the deployment at `base_url`. Used by many tasks of one event loop at once, and closed at the end.

    `token` is a service's; `user` instead names a person by e-mail address, which is believed only from a trusted
    proxy. `timeout_seconds` bounds each attempt (for a file: each standstill), `attempts` the number of them for one
    call, `connections` how many are underway at once.

    Raises:
        ValueError: an argument makes no sense.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str = "",
        user: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
        attempts: int = ATTEMPTS,
        connections: int = CONNECTIONS,
    ) -> None:
        from carillon.async_runtime import AsyncRuntime  # who blocks needs no asyncio

        transport = transport_of(
            base_url,
            AsyncRuntime(),
            token=token,
            user=user,
            timeout_seconds=timeout_seconds,
            attempts=attempts,
            connections=connections,
        )
        super().__init__(transport)

    async def close(self) -> None:
        """Wait for the calls in flight and close the connections; a later call raises `RuntimeError`."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
