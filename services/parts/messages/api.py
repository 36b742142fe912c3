"""Messages in the API's process."""

from collections.abc import Sequence

from services.api.http.pages.routes import PageSet
from services.api.http.routes import Resource
from services.api.messages.callbacks import CallbacksResource
from services.api.messages.credentials import CredentialsResource
from services.api.messages.job_messages import JobMessagesResource
from services.api.messages.keys import SecretKeysResource
from services.api.messages.messages import MessagesResource
from services.api.messages.pages.accounts import AccountPages
from services.api.messages.pages.ledger import LedgerPages
from services.api.messages.pages.recipients import RecipientPages
from services.api.messages.recipients import RecipientsResource
from services.api.messages.retries import RetriesResource
from services.api.messages.single_sends import SingleSendsResource
from services.api.messages.suppression_bulk import BulkSuppressionsResource
from services.api.messages.suppressions import SuppressionsResource
from services.api.messages.unsubscribing import UnsubscribeResource
from services.parts import Part
from services.parts.jobs.api import JobsApi
from services.parts.messages.common import MessagesPart
from shared.flow.messages.credential_figures import CredentialFigures
from shared.flow.messages.redacting import RecipientRedaction
from shared.flow.messages.singles import SendLimiter
from shared.flow.messages.unsubscribing import UnsubscribeFlow


class MessagesApi(Part):
    """Credentials and their keys, jobs that send by them, single messages, states of messages, callbacks of providers,
    suppressions, and links to unsubscribe."""

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
