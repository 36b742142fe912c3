"""The special rules of batches of messages.

Their entries in the ledger record what was sent, so a batch can return to its plan at any time: when its job is held,
when an older job needs its place, or when some of its messages are retried later (`not_before`). A settled batch
returns when its job is reopened.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from shared.domain.jobs.batches import SETTLED, TRANSITIONS, BatchStatus, Receipt, add_counts
from shared.domain.messages.ledger import Message, MessageState

MESSAGE_TRANSITIONS: Mapping[BatchStatus, frozenset[BatchStatus]] = TRANSITIONS | {
    BatchStatus.SENDING: TRANSITIONS[BatchStatus.SENDING] | {BatchStatus.PLANNED, BatchStatus.DROPPED},
    **{status: frozenset({BatchStatus.PLANNED}) for status in SETTLED},
}

_SENT = (MessageState.SENT, MessageState.DELIVERED, MessageState.READ)
_FAILED = (MessageState.FAILED, MessageState.UNKNOWN)


def receipt_of_entries(entries: Collection[Message]) -> Receipt:
    """The receipt of a batch's messages, in the words of all jobs: `unknown` ones count as failed, invalid ones as
    skipped."""
    reasons = Counter(str(entry.reason) for entry in entries if entry.reason)
    return receipt_of_states(Counter(entry.state.value for entry in entries), reasons)


def receipt_of_states(states: Mapping[str, int], reasons: dict[str, int]) -> Receipt:
    unknown = states.get(MessageState.UNKNOWN, 0)
    return Receipt(
        sent=sum(states.get(state, 0) for state in _SENT),
        failed=sum(states.get(state, 0) for state in _FAILED),
        skipped=states.get(MessageState.INVALID, 0),
        reasons=add_counts(reasons, {MessageState.UNKNOWN.value: unknown} if unknown else {}),
    )
