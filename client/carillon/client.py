"""The two clients: `Carillon` for synchronous programs, `AsyncCarillon` for asyncio. They have the same resources."""

from abc import abstractmethod
from types import TracebackType
from typing import Self

from carillon.accounts import Apps, Sessions, Tokens, Users
from carillon.blocking_runtime import BlockingRuntime
from carillon.bus import BusDeadLetters, BusDeliveries, Topics
from carillon.bus_subscriptions import BusSubscriptions
from carillon.calls import Async, M, Sync, run
from carillon.connections import Runtime
from carillon.console import Audit, BulkActions, Deployment, Queues
from carillon.credentials import Credentials
from carillon.dead_letters import DeadLetters
from carillon.jobs import Groups, Jobs
from carillon.messages import Messages, Suppressions
from carillon.schedules import Calendars, Schedules
from carillon.signing import SigningSecrets
from carillon.templates import Templates, Uploads
from carillon.transport import Transport

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5
CONNECTIONS = 20


class Resources(Deployment[M]):
    """The parts of the API, each with its calls."""

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
        transport = Transport(
            base_url,
            runtime=self._make_runtime(),
            headers=headers,
            timeout_seconds=timeout_seconds,
            attempts=attempts,
            connections=connections,
        )
        super().__init__(transport)
        self.apps = Apps[M](transport)
        self.credentials = Credentials[M](transport)
        self.templates = Templates[M](transport)
        self.users = Users[M](transport)
        self.tokens = Tokens[M](transport)
        self.audit = Audit[M](transport)
        self.bulk_actions = BulkActions[M](transport)
        self.bus_subscriptions = BusSubscriptions[M](transport)
        self.deliveries = BusDeliveries[M](transport)
        self.bus_dead_letters = BusDeadLetters[M](transport)
        self.queues = Queues[M](transport)
        self.schedules = Schedules[M](transport)
        self.calendars = Calendars[M](transport)
        self.dead_letters = DeadLetters[M](transport)
        self.jobs = Jobs[M](transport)
        self.messages = Messages[M](transport)
        self.groups = Groups[M](transport)
        self.sessions = Sessions[M](transport)
        self.signing_secrets = SigningSecrets[M](transport)
        self.suppressions = Suppressions[M](transport)
        self.topics = Topics[M](transport)
        self.uploads = Uploads[M](transport)

    @abstractmethod
    def _make_runtime(self) -> Runtime: ...


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
