"""What `Carillon` and `AsyncCarillon` are made of: the resources of one deployment, over one transport."""

from typing import Generic

from carillon.calls import M
from carillon.dead_letters import DeadLetters
from carillon.groups import Groups
from carillon.jobs import Jobs
from carillon.runtimes import Runtime
from carillon.schedules import Schedules
from carillon.signing_secrets import SigningSecrets
from carillon.transport import Transport
from carillon.uploads import Uploads

TIMEOUT_SECONDS = 30.0
ATTEMPTS = 5
CONNECTIONS = 20


class Resources(Generic[M]):
    """The parts of the API, each with its calls."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.schedules = Schedules[M](transport)
        self.dead_letters = DeadLetters[M](transport)
        self.jobs = Jobs[M](transport)
        self.groups = Groups[M](transport)
        self.signing_secrets = SigningSecrets[M](transport)
        self.uploads = Uploads[M](transport)


def transport_of(
    base_url: str,
    runtime: Runtime,
    *,
    token: str,
    user: str,
    timeout_seconds: float,
    attempts: int,
    connections: int,
) -> Transport:
    """The transport of a client with these arguments. Raises `ValueError` where one makes no sense."""
    if token and user:
        raise ValueError("either token or user, not both")
    if attempts < 1 or connections < 1 or timeout_seconds <= 0:
        raise ValueError("attempts and connections are 1 or more, and timeout_seconds is more than 0")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers |= {"x-forwarded-email": user} if user else {}
    return Transport(
        base_url,
        runtime=runtime,
        headers=headers,
        timeout_seconds=timeout_seconds,
        attempts=attempts,
        connections=connections,
    )
