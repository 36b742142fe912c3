"""What several processes need of messages."""

from functools import cached_property
from typing import TYPE_CHECKING

from services.parts import Part

if TYPE_CHECKING:  # it brings cryptography along, and not every process opens a secret
    from shared.flow.messages.credentials import CredentialFlow
    from shared.flow.messages.unsubscribing import UnsubscribeLinks


class MessagesPart(Part):
    """Messages, and the credentials that they are sent by."""

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
            is_in_use=self.is_in_use,
        )

    @cached_property
    def links(self) -> "UnsubscribeLinks":
        """The links by which recipients unsubscribe."""
        from shared.flow.messages.unsubscribing import UnsubscribeLinks

        return UnsubscribeLinks(self.capabilities.key_ring, public_url=self.settings.api.public_url)

    async def is_in_use(self, credential_id: str) -> bool:
        """Whether an open job sends by this credential."""
        return False  # no job can name one yet
