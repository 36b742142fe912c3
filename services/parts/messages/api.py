"""What the API serves of messages."""

from collections.abc import Sequence

from services.api.http.routes import Resource
from services.api.messages.callbacks import CallbacksResource
from services.api.messages.credentials import CredentialsResource
from services.api.messages.keys import SecretKeysResource
from services.api.messages.retries import RetriesResource
from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.parts.messages.common import MessagesPart


class MessagesApi(Part):
    """Credentials, the keys that their secrets are sealed under, and callbacks of providers."""

    def resources(self) -> Sequence[Resource]:
        part, given = self.parts.of(MessagesPart), self.capabilities
        return (
            CredentialsResource(self.store, part.credentials, given.key_ring, given.clock),
            SecretKeysResource(part.credentials),
            CallbacksResource(part.callbacks, public_url=self.settings.api.public_url),
            RetriesResource(self.store, part.retry, self.parts.of(JobsPart).watch),
        )
