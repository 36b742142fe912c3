"""Single messages: what a request sends to one recipient, at once or at an instant.

Such a message has an entry in the ledger as any other, which also tells what was asked for (`SingleWish`). While it is
to be sent, or is being sent, it is *pending*: by that a worker finds it. It is looked at when `due`, which moves where
it is to be tried again later.

A credential's single messages are sent by one worker at a time, who has its *lease*. A caller that wants some sent
raises the lease's `wanted`. So a worker that lets go of the lease, and finds that raised, looks once more.
"""

from datetime import datetime, timedelta

from msgspec import Struct

from shared.domain.messages.channels import Channel

SILENCE = timedelta(seconds=10)
"""A worker that has shown no sign for so long has lost the lease."""


class Pending(Struct, frozen=True, kw_only=True):
    """That a message waits, for whom, and who asked for it."""

    credential_id: str
    namespace: str
    due: datetime


class SingleWish(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The wish for a single message: to be sent at `due`, and not behind `expires_at`. `transactional` ones reach those
    too who have unsubscribed. Its content stands elsewhere, until it is pending no more."""

    channel: Channel
    namespace: str
    created_at: datetime
    due: datetime
    expires_at: datetime | None = None
    template: str = ""
    list: str = ""
    transactional: bool = True

    def is_over(self, now: datetime) -> bool:
        """Whether it is too late to send it."""
        return self.expires_at is not None and now >= self.expires_at


class SendLease(Struct, frozen=True, kw_only=True):
    """The lease to send the single messages of the credential `id`; nobody has it where `owner` is `""`."""

    id: str
    owner: str = ""
    wanted: int = 0
    changed_at: datetime | None = None

    def is_held(self, now: datetime) -> bool:
        """Whether somebody is at work, by this time of the database."""
        return bool(self.owner) and self.changed_at is not None and now - self.changed_at < SILENCE
