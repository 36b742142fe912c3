"""Bars: whom a message must not reach, and which message bars its recipient from others."""

from collections.abc import Sequence
from datetime import datetime

from shared.domain.messages.answers import Reason
from shared.domain.messages.channels import Channel
from shared.domain.messages.jobs import MessageOptions
from shared.domain.messages.ledger import Message
from shared.domain.messages.recipients import Malformed, read_address
from shared.domain.messages.singles import SingleWish
from shared.domain.messages.suppressions import Suppression, SuppressionCause, reason_of, suppress_address
from shared.store import Store

_CAUSES = {Reason.HARD_BOUNCE: SuppressionCause.BOUNCE, Reason.COMPLAINT: SuppressionCause.COMPLAINT}


async def find_barred(
    store: Store, app_id: str, options: MessageOptions | SingleWish, addresses: Sequence[str]
) -> dict[str, Reason]:
    """Those of the addresses, in their normal form, that get nothing sent with these options, and why. Raises
    `Unavailable`."""
    found = await store.suppressions.find(app_id, options.channel, addresses, options.list)
    reasons = {
        address: reason_of([suppression], list_name=options.list, transactional=options.transactional)
        for address, suppression in found.items()
    }
    return {address: reason for address, reason in reasons.items() if reason is not None}


def bar_of(
    before: Message | None, after: Message, channel: Channel, *, at: datetime, recipient: str = ""
) -> Suppression | None:
    """The bar that a change of a message calls for: it has bounced for good, or was complained about. If a redacted
    message has forgotten its recipient, the provider may tell who that was."""
    if before is not None and after.reason == before.reason:
        return None
    cause = _CAUSES.get(Reason(after.reason)) if after.reason else None
    address = after.to or read_address(recipient, channel)
    if cause is None or isinstance(address, Malformed):
        return None
    return suppress_address(after.app_id, channel, address, cause=cause, at=at, message_id=after.id)
