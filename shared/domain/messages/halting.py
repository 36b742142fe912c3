"""When a job's messages bounce so often that it is held."""

from collections.abc import Mapping

from msgspec import Struct

from shared.domain.messages.answers import Reason
from shared.domain.messages.jobs import Halt
from shared.domain.messages.ledger import MessageState

_OUTCOMES = (MessageState.DELIVERED, MessageState.READ, MessageState.FAILED, MessageState.INVALID)


class Bounces(Struct, frozen=True):
    """How many messages of a job bounced for good, and how many have an outcome at all."""

    bounced: int = 0
    outcomes: int = 0

    def without(self, earlier: "Bounces") -> "Bounces":
        """What has come since then."""
        return Bounces(self.bounced - earlier.bounced, self.outcomes - earlier.outcomes)


def count_bounces(tally: Mapping[str, int]) -> Bounces:
    """What a job's tally says about bounces."""
    bounced = tally.get(f"reasons.{Reason.HARD_BOUNCE}", 0)
    return Bounces(bounced, sum(tally.get(state.value, 0) for state in _OUTCOMES))


def is_to_be_held(counted: Bounces, halt: Halt) -> bool:
    """Whether these are too many. Soft bounces do not count."""
    return counted.bounced > halt.minimum and counted.bounced > halt.share * counted.outcomes
