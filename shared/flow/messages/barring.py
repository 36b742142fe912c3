"""Who of some recipients gets nothing of a job, or no single message, since something stands against it."""

from collections.abc import Sequence

from shared.domain.messages.answers import Reason
from shared.domain.messages.jobs import MessageOptions
from shared.domain.messages.singles import SingleWish
from shared.domain.messages.suppressions import reason_of
from shared.store import Store


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
