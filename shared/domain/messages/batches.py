"""Batches of messages: what differs from the batches of other jobs.

Their entries in the ledger tell what was sent, so a batch goes back into its plan at any time: when its job is held,
when an older job wants its place, or when some of its messages are to be tried again later (`not_before`). A settled
one goes back when its job is taken up again.
"""

from collections import Counter
from collections.abc import Collection, Mapping

from shared.domain.jobs.batches import SETTLED, TRANSITIONS, BatchStatus, Receipt
from shared.domain.messages.ledger import Message, MessageState

MESSAGE_TRANSITIONS: Mapping[BatchStatus, frozenset[BatchStatus]] = TRANSITIONS | {
    BatchStatus.SENDING: TRANSITIONS[BatchStatus.SENDING] | {BatchStatus.PLANNED, BatchStatus.DROPPED},
    **{status: frozenset({BatchStatus.PLANNED}) for status in SETTLED},
}

_SENT = (MessageState.SENT, MessageState.DELIVERED, MessageState.READ)
_FAILED = (MessageState.FAILED, MessageState.UNKNOWN)


def receipt_of_entries(entries: Collection[Message]) -> Receipt:
    """What became of the messages of a batch, in the words of all jobs: `unknown` ones count as failed, invalid ones
    as skipped."""
    states = Counter(entry.state for entry in entries)
    reasons = Counter(entry.reason for entry in entries if entry.reason)
    if states[MessageState.UNKNOWN]:
        reasons[MessageState.UNKNOWN] += states[MessageState.UNKNOWN]
    return Receipt(
        sent=sum(states[state] for state in _SENT),
        failed=sum(states[state] for state in _FAILED),
        skipped=states[MessageState.INVALID],
        reasons={str(reason): count for reason, count in reasons.items()},
    )
