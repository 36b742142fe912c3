"""The parts of `Carillon` and `AsyncCarillon`: the resources of one deployment, over one transport."""

from abc import abstractmethod

from carillon.apps import Apps
from carillon.audit import Audit
from carillon.bulk_actions import BulkActions
from carillon.bus_dead_letters import BusDeadLetters
from carillon.bus_deliveries import BusDeliveries
from carillon.bus_subscriptions import BusSubscriptions
from carillon.calls import M
from carillon.credentials import Credentials
from carillon.dead_letters import DeadLetters
from carillon.deployment import Deployment
from carillon.groups import Groups
from carillon.jobs import Jobs
from carillon.messages import Messages
from carillon.queues import Queues
from carillon.runtimes import Runtime
from carillon.schedules import Schedules
from carillon.sessions import Sessions
from carillon.signing_secrets import SigningSecrets
from carillon.suppressions import Suppressions
from carillon.templates import Templates
from carillon.tokens import Tokens
from carillon.topics import Topics
from carillon.transport import Transport
from carillon.uploads import Uploads
from carillon.users import Users

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
