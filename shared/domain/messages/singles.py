"""Single messages: a request sends one to one recipient, at once or at an instant.

Such a message has an entry in the ledger, which also contains the request (`SingleWish`). Until it is sent it is
*pending*, and workers find it by that. Workers look at it when `due`, which moves with each retry.

One worker at a time sends a credential's single messages: the owner of its *lease*. A caller with a new message raises
the lease's `wanted`. A worker that releases the lease and finds `wanted` raised looks once more.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from shared.domain.messages.channels import Channel

SILENCE = timedelta(seconds=10)
"""A worker that has shown no sign for this long has lost the lease."""


class Pending(Struct, frozen=True, kw_only=True):
    credential_id: str
    namespace: str
    due: datetime


class SingleWish(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The request for a single message: to be sent at `due`, and not after `expires_at`. `transactional` ones also
    reach recipients who have unsubscribed. Its content is stored elsewhere while it is pending."""

    channel: Channel
    namespace: str
    created_at: datetime
    due: datetime
    expires_at: datetime | None = None
    template: str = ""
    list: str = ""
    transactional: bool = True

    def is_over(self, now: datetime) -> bool:
        return self.expires_at is not None and now >= self.expires_at


class SendLease(Struct, frozen=True, kw_only=True):
    """The lease to send the single messages of the credential `id`; `owner` is `""` if it is free."""

    id: str
    owner: str = ""
    wanted: int = 0
    changed_at: datetime | None = None

    def is_held(self, now: datetime) -> bool:
        return bool(self.owner) and self.changed_at is not None and now - self.changed_at < SILENCE
