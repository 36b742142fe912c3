"""Events of messages, which Carillon publishes itself (`shared/domain/outbox.py`)."""

from shared.domain.instants import format_instant
from shared.domain.messages.ledger import Message, MessageState
from shared.domain.outbox import MESSAGES_TOPIC, OwnEvent, without_empty

_TYPES = {
    MessageState.UNKNOWN: "message.unknown",
    MessageState.DELIVERED: "message.delivered",
    MessageState.READ: "message.read",
    MessageState.FAILED: "message.failed",
    MessageState.INVALID: "message.failed",
}


def message_event(before: Message | None, after: Message) -> OwnEvent | None:
    """The event of a change to delivered, read, failed or unknown, or from unknown to sent; otherwise `None`. A first
    `sent` has no event: the job's totals count it."""
    was = None if before is None else before.state
    is_settled = was is MessageState.UNKNOWN and after.state is MessageState.SENT
    kind = "message.sent" if is_settled else _TYPES.get(after.state)
    if kind is None or was is after.state:
        return None
    at = {MessageState.DELIVERED: after.delivered_at, MessageState.READ: after.read_at}.get(after.state)
    facts = {
        "message": after.id,
        "app": after.app_id,
        "credential": after.credential_id,
        "state": after.state.value,
        "reason": after.reason,
        "attempt": after.attempt,
        "at": at and format_instant(at),
    }
    return OwnEvent(
        id=f"{after.id}/{after.v}",
        topic=MESSAGES_TOPIC,
        type=kind,
        path=f"/apps/{after.app_id}/messages/{after.id}",
        app_id=after.app_id,
        data=without_empty(facts),
    )
