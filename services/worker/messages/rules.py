"""Rules of a deployment for all senders of messages."""

from msgspec import Struct

from shared.domain.messages.pacing import PaceGuard


class SendRules(Struct, frozen=True, kw_only=True):
    """Rules of a deployment for all senders."""

    guard: PaceGuard
    call_seconds: float

    @property
    def call_us(self) -> int:
        """The longest duration of a call in microseconds."""
        return int(self.call_seconds * 1_000_000)
