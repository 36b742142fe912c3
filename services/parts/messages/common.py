"""What several processes need of messages."""

from functools import cached_property
from typing import TYPE_CHECKING

from services.parts import Part

if TYPE_CHECKING:  # it brings cryptography along, and not every process opens a secret
    from shared.flow.messages.callbacks import CallbackFlow
    from shared.flow.messages.credentials import CredentialFlow
    from shared.flow.messages.receipts import Receipts


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
    def receipts(self) -> "Receipts":
        from shared.flow.messages.receipts import Receipts

        return Receipts(self.store, self.capabilities.clock)

    @cached_property
    def callbacks(self) -> "CallbackFlow":
        from shared.flow.messages.callbacks import CallbackFlow

        given = self.capabilities
        return CallbackFlow(
            self.store, lambda: given.provider_kinds, given.key_ring, given.provider_outgoing, self.receipts
        )

    async def is_in_use(self, credential_id: str) -> bool:
        """Whether an open job sends by this credential."""
        return False  # no job can name one yet
