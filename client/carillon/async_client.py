"""The client for asyncio: one object for a deployment, with its connections behind it."""

from types import TracebackType
from typing import Self

from carillon.dead_letters import DeadLetters
from carillon.groups import Groups
from carillon.jobs import Jobs
from carillon.schedules import Schedules
from carillon.signing_secrets import SigningSecrets
from carillon.transport import Transport
from carillon.uploads import Uploads

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5
CONNECTIONS = 20


class AsyncCarillon:
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
        if token and user:
            raise ValueError("either token or user, not both")
        if attempts < 1 or connections < 1 or timeout_seconds <= 0:
            raise ValueError("attempts and connections are 1 or more, and timeout_seconds is more than 0")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        headers |= {"x-forwarded-email": user} if user else {}
        self._transport = Transport(
            base_url, headers=headers, timeout_seconds=timeout_seconds, attempts=attempts, connections=connections
        )
        self.schedules = Schedules(self._transport)
        self.dead_letters = DeadLetters(self._transport)
        self.jobs = Jobs(self._transport)
        self.groups = Groups(self._transport)
        self.signing_secrets = SigningSecrets(self._transport)
        self.uploads = Uploads(self._transport)

    async def close(self) -> None:
        """Wait for the calls in flight and close the connections; a later call raises `RuntimeError`."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
