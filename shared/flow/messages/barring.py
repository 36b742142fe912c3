"""Bars: recipients that a message must not reach, and answers that suppress a recipient."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import partial

from shared.domain.messages.answers import Reason
from shared.domain.messages.channels import Channel
from shared.domain.messages.jobs import MessageOptions
from shared.domain.messages.ledger import Message
from shared.domain.messages.recipients import Malformed, former_form, read_address
from shared.domain.messages.singles import SingleWish
from shared.domain.messages.suppressions import Suppression, SuppressionCause, reason_of, suppress_address
from shared.store import Store
from shared.store.messages.ledger import EntryChange, Transact

_CAUSES = {
    Reason.HARD_BOUNCE: SuppressionCause.BOUNCE,
    Reason.COMPLAINT: SuppressionCause.COMPLAINT,
    Reason.UNSUBSCRIBED: SuppressionCause.UNSUBSCRIBE,
}


async def find_barred(
    store: Store, app_id: str, options: MessageOptions | SingleWish, addresses: Sequence[str]
) -> dict[str, Reason]:
    """The addresses, in normal form, that get nothing with these options, and the reason for each."""
    former = {form: address for address in addresses if (form := former_form(address)) is not None}
    found = await store.suppressions.find(app_id, options.channel, [*addresses, *former], options.list)
    reasons = {
        address: reason_of([suppression], list_name=options.list, transactional=options.transactional)
        for address, suppression in found.items()
    }
    return {former.get(form, form): reason for form, reason in reasons.items() if reason is not None}


def bars_beside(store: Store, changes: Iterable[EntryChange], channel: Channel) -> Transact | None:
    """The write that adds the suppressions caused by these answers, in the transaction of their entries. `channel` is
    that of a job's messages; single messages have their own."""
    bars = []
    for change in changes:
        after, single = change.after, change.after.single
        if after.answered_at is not None:
            told_by = channel if single is None else single.channel
            bars.append(bar_of(change.before, after, told_by, at=after.answered_at))
    wanted = [bar for bar in bars if bar is not None]
    return partial(store.suppressions.add_in, suppressions=wanted) if wanted else None


def bar_of(
    before: Message | None, after: Message, channel: Channel, *, at: datetime, recipient: str = ""
) -> Suppression | None:
    """The suppression of all lists after a hard bounce, a complaint or an unsubscription at the provider; `None` if
    there is no such change. If a redacted message has lost its recipient, `recipient` is the provider's word."""
    if before is not None and after.reason == before.reason:
        return None
    cause = _CAUSES.get(Reason(after.reason)) if after.reason else None
    address = read_address(after.to or recipient, channel)
    if cause is None or isinstance(address, Malformed):
        return None
    return suppress_address(after.app_id, channel, address, cause=cause, at=at, message_id=after.id)
