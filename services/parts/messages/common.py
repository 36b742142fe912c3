"""The part of messages that several processes share."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from services.parts import Part
from services.parts.jobs.common import JobsPart
from shared.flow.accounts import Belongings
from shared.flow.jobs.kinds import JobKind
from shared.flow.messages.feeding import CredentialFeed
from shared.flow.messages.figures import MessageFigures
from shared.flow.messages.halting import BounceBreaker
from shared.flow.messages.kind import JobRetry, MessageKind
from shared.flow.messages.retention import MessageBelongings
from shared.flow.messages.singles import SingleFlow

if TYPE_CHECKING:  # these bring drivers and cryptography along, and not every process needs them
    from shared.audience.recipient_tables import RecipientTables
    from shared.flow.messages.barring import UnsubscribeLinks
    from shared.flow.messages.credentials import CredentialFlow
    from shared.flow.messages.receipts import CallbackFlow, Receipts


class MessagesPart(Part):
    @cached_property
    def feed(self) -> CredentialFeed:
        return CredentialFeed(self.store, self.capabilities.broker)

    @cached_property
    def retry(self) -> JobRetry:
        return JobRetry(self.store, self.feed, self.capabilities.clock)

    @cached_property
    def bounces(self) -> BounceBreaker:
        given, mails = self.capabilities, self.parts.of(JobsPart).has_mails
        return BounceBreaker(self.store, given.clock, role=given.service, mails=mails)

    @cached_property
    def tables(self) -> "RecipientTables":
        from shared.audience.recipient_tables import RecipientTables

        return RecipientTables.beside(self.capabilities.audience)

    @cached_property
    def credentials(self) -> "CredentialFlow":
        from shared.flow.messages.credentials import CredentialFlow

        given = self.capabilities
        return CredentialFlow(
            self.store,
            lambda: given.provider_kinds,
            given.key_ring,
            given.provider_outgoing,
            given.clock,
            is_in_use=self._is_in_use,
        )

    async def _is_in_use(self, credential_id: str) -> bool:
        """Whether open jobs or pending messages use it."""
        store = self.store
        return await store.message_jobs.has_open(credential_id) or await store.singles.has_pending(credential_id)

    @cached_property
    def links(self) -> "UnsubscribeLinks":
        from shared.flow.messages.barring import UnsubscribeLinks

        return UnsubscribeLinks(self.capabilities.key_ring, public_url=self.settings.api.public_url)

    @cached_property
    def receipts(self) -> "Receipts":
        from shared.flow.messages.receipts import Receipts

        return Receipts(self.store, self.capabilities.clock)

    @cached_property
    def callbacks(self) -> "CallbackFlow":
        from shared.flow.messages.receipts import CallbackFlow

        given = self.capabilities
        return CallbackFlow(
            self.store, lambda: given.provider_kinds, given.key_ring, given.provider_outgoing, self.receipts
        )

    @cached_property
    def singles(self) -> SingleFlow:
        return SingleFlow(self.store, self.capabilities.broker, self.capabilities.time)

    @cached_property
    def figures(self) -> MessageFigures:
        return MessageFigures(self.store)

    def belongings(self) -> Sequence[Belongings]:
        return (MessageBelongings(self.store),)

    def job_kinds(self) -> Sequence[JobKind]:
        return (MessageKind(self.store, lambda: self.tables, self.feed, self.retry),)
