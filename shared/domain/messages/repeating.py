"""The messages that are sent a second time though the provider may have them."""

from msgspec import Struct

from shared.domain.messages.ledger import Message


class Repeating(Struct, frozen=True):
    """The repeatable messages with an unknown outcome: all if `wanted`, otherwise those called at the provider that
    `within` names, which drops second calls."""

    wanted: bool = False
    within: str = ""

    @property
    def allows_own(self) -> bool:
        return self.wanted or bool(self.within)

    def allows(self, message: Message) -> bool:
        """Whether this message is sent again, whichever worker called it."""
        return self.wanted or bool(self.within and message.repeats_within == self.within)
