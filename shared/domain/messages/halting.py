"""The rule that holds a job whose messages bounce too often."""

from collections.abc import Mapping

from msgspec import Struct

from shared.domain.messages.answers import NEVER_IN_TIME, Reason
from shared.domain.messages.jobs import Halt
from shared.domain.messages.ledger import MessageState

_BOUNCED = (Reason.HARD_BOUNCE, Reason.SOFT_BOUNCE, Reason.REFUSED, Reason.UNREGISTERED)
_ANSWERED = (
    MessageState.SENT,
    MessageState.DELIVERED,
    MessageState.READ,
    MessageState.FAILED,
    MessageState.INVALID,
)
_NEVER_CALLED = (
    Reason.MALFORMED,
    Reason.SUPPRESSED,
    Reason.UNSUBSCRIBED,
    Reason.ADDRESS_CHANGED,
    Reason.UNRENDERED,
    *NEVER_IN_TIME,
)


class Bounces(Struct, frozen=True):
    """The messages of a job that bounced or were refused, and those that the provider answered (`outcomes`)."""

    bounced: int = 0
    outcomes: int = 0

    def without(self, earlier: "Bounces") -> "Bounces":
        return Bounces(self.bounced - earlier.bounced, self.outcomes - earlier.outcomes)


def count_bounces(tally: Mapping[str, int]) -> Bounces:
    bounced = sum(tally.get(f"reasons.{reason}", 0) for reason in _BOUNCED)
    answered = sum(tally.get(state.value, 0) for state in _ANSWERED)
    return Bounces(bounced, answered - sum(tally.get(f"reasons.{reason}", 0) for reason in _NEVER_CALLED))


def is_to_be_held(counted: Bounces, halt: Halt) -> bool:
    return counted.bounced > halt.minimum and counted.bounced > halt.share * counted.outcomes
