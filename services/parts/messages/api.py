"""Messages in the API's process."""

from collections.abc import Sequence

from services.api.http.pages.routes import PageSet
from services.api.http.routes import Resource
from services.api.messages.callbacks import CallbacksResource
from services.api.messages.credentials import CredentialsResource, SecretKeysResource
from services.api.messages.job_messages import JobMessagesResource, RetriesResource
from services.api.messages.messages import MessagesResource, RecipientsResource
from services.api.messages.pages.accounts import AccountPages
from services.api.messages.pages.ledger import LedgerPages, RecipientPages
from services.api.messages.single_sends import SingleSendsResource
from services.api.messages.suppressions import BulkSuppressionsResource, SuppressionsResource
from services.api.messages.unsubscribing import UnsubscribeResource
from services.parts import Part
from services.parts.jobs.api import JobsApi
from services.parts.messages.common import MessagesPart
from shared.flow.messages.barring import UnsubscribeFlow
from shared.flow.messages.figures import CredentialFigures
from shared.flow.messages.retention import RecipientRedaction
from shared.flow.messages.singles import SendLimiter


class MessagesApi(Part):
    def resources(self) -> Sequence[Resource]:
        part, given = self.parts.of(MessagesPart), self.capabilities
        standing = CredentialFigures(self.store)
        return (
            CredentialsResource(self.store, part.credentials, standing, given.key_ring, given.clock),
            SecretKeysResource(part.credentials),
            JobMessagesResource(self.store, part.figures),
            MessagesResource(self.store),
            SingleSendsResource(
                self.store,
                part.singles,
                SendLimiter(self.store, given.time, most_due=self.settings.providers.waiting_singles),
                part.credentials,
                part.links,
                given.time,
            ),
            RecipientsResource(self.store, RecipientRedaction(self.store)),
            RetriesResource(self.store, part.retry, self.parts.of(JobsApi).answers),
            SuppressionsResource(self.store, given.clock),
            BulkSuppressionsResource(self.store, given.clock),
            UnsubscribeResource(UnsubscribeFlow(self.store, part.links, given.clock)),
            CallbacksResource(part.callbacks, public_url=self.settings.api.public_url),
        )

    def pages(self) -> Sequence[PageSet]:
        return AccountPages(), LedgerPages(), RecipientPages()
