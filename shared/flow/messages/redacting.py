"""Redacting all messages to one person at once."""

from shared.domain.errors import Invalid
from shared.domain.messages.recipients import ADDRESS_CHARACTERS, spellings_of
from shared.store import Store

_STEP = 500
_STEPS = 20


class RecipientRedaction:
    """Redacts the messages of one address, in steps."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def redact(self, app_id: str, written: str) -> tuple[int, bool]:
        """Redact the app's messages to an address in any of its spellings. Returns how many, and whether there may be
        more for another call. Raises `Invalid` if this cannot be an address."""
        if not written or len(written) > ADDRESS_CHARACTERS:
            raise Invalid(f"an address has 1 to {ADDRESS_CHARACTERS:,} characters", field="address")
        total, addresses = 0, spellings_of(written)
        for _ in range(_STEPS):
            redacted = await self._store.redaction.redact_recipient(app_id, addresses, limit=_STEP)
            total += redacted
            if redacted < _STEP:
                return total, False
        return total, True
