"""What the API serves of messages."""

from collections.abc import Sequence

from services.api.http.routes import Resource
from services.api.messages.callbacks import CallbacksResource
from services.api.messages.credentials import CredentialsResource
from services.api.messages.keys import SecretKeysResource
from services.api.messages.retries import RetriesResource
from services.api.messages.suppression_bulk import BulkSuppressionsResource
from services.api.messages.suppressions import SuppressionsResource
from services.api.messages.unsubscribing import UnsubscribeResource
from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.parts.messages.common import MessagesPart
from shared.flow.messages.unsubscribing import UnsubscribeFlow


class MessagesApi(Part):
    """Credentials and their keys, what providers call back, suppressions, and the links to unsubscribe by."""

    def resources(self) -> Sequence[Resource]:
        part, given = self.parts.of(MessagesPart), self.capabilities
        return (
            CredentialsResource(self.store, part.credentials, given.key_ring, given.clock),
            SecretKeysResource(part.credentials),
            RetriesResource(self.store, part.retry, self.parts.of(JobsPart).watch),
            SuppressionsResource(self.store, given.clock),
            BulkSuppressionsResource(self.store, given.clock),
            UnsubscribeResource(UnsubscribeFlow(self.store, part.links, given.clock)),
            CallbacksResource(part.callbacks, public_url=self.settings.api.public_url),
        )
