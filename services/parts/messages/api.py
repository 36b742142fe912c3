"""What the API serves of messages."""

from collections.abc import Sequence

from services.api.http.routes import Resource
from services.api.messages.credentials import CredentialsResource
from services.api.messages.keys import SecretKeysResource
from services.api.messages.retries import RetriesResource
from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.parts.messages.common import MessagesPart


class MessagesApi(Part):
    """Credentials, and the keys that their secrets are sealed under."""

    def resources(self) -> Sequence[Resource]:
        flow, given = self.parts.of(MessagesPart).credentials, self.capabilities
        return (
            CredentialsResource(self.store, flow, given.key_ring, given.clock),
            SecretKeysResource(flow),
            RetriesResource(self.store, self.parts.of(MessagesPart).retry, self.parts.of(JobsPart).watch),
        )
