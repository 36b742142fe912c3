"""Which messages are sent a second time though the provider may have them."""

from msgspec import Struct

from shared.domain.messages.ledger import Message


class Repeating(Struct, frozen=True):
    """Which of the messages are sent again of which nobody can tell whether the provider has them: all where `wanted`,
    else those that were called where the provider drops a second call, and are called there still (`within`)."""

    wanted: bool = False
    within: str = ""

    @property
    def allows_own(self) -> bool:
        """Whether a message that was called a moment ago is sent again."""
        return self.wanted or bool(self.within)

    def allows(self, message: Message) -> bool:
        """Whether this message is sent again, whoever called it."""
        return self.wanted or bool(self.within and message.repeats_within == self.within)
