"""What the API serves of messages."""

from collections.abc import Sequence

from services.api.http.routes import Resource
from services.api.jobs.account_jobs import AccountJobs
from services.api.messages.credentials import CredentialsResource
from services.api.messages.job_messages import JobMessagesResource
from services.api.messages.keys import SecretKeysResource
from services.api.messages.message_jobs import MessageAccountJobs
from services.api.messages.messages import MessagesResource
from services.api.messages.retries import RetriesResource
from services.parts import Part
from services.parts.jobs.api import JobsApi
from services.parts.messages.common import MessagesPart


class MessagesApi(Part):
    """Credentials, the keys that their secrets are sealed under, and what became of messages."""

    def account_jobs(self) -> AccountJobs:
        messages = self.parts.of(MessagesPart)
        return MessageAccountJobs(self.store, messages.credentials, lambda: messages.tables, messages.figures)

    def resources(self) -> Sequence[Resource]:
        flow, given = self.parts.of(MessagesPart).credentials, self.capabilities
        return (
            CredentialsResource(self.store, flow, given.key_ring, given.clock),
            SecretKeysResource(flow),
            JobMessagesResource(self.store, self.parts.of(MessagesPart).figures),
            MessagesResource(self.store),
            RetriesResource(self.store, self.parts.of(MessagesPart).retry, self.parts.of(JobsApi).answers),
        )
