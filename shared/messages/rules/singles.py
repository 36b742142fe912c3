"""Single messages: a request sends one to one recipient, at once or at an instant. And the tasks of all messages.

Such a message has an entry in the ledger, which also contains the request (`SingleWish`). Until it is sent it is
*pending*, and workers find it by that. Workers look at it when `due`, which moves with each retry.

One worker at a time sends a credential's single messages: the owner of its *lease*. A caller with a new message
raises the lease's `wanted`. A worker that releases the lease and finds `wanted` raised looks once more.

    credential/<id>                     an occurrence that feeds a credential
    message/<id of the credential>      an occurrence that sends its single messages
"""

from datetime import datetime, timedelta
from typing import ClassVar

from msgspec import Struct

from shared.core.tasks import RetriedTask
from shared.jobs.rules.jobs import SendBatch
from shared.messages.rules.answers import Channel

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


CREDENTIAL = "credential"
SINGLES = "message"


def credential_owner(credential_id: str) -> str:
    return f"{CREDENTIAL}/{credential_id}"


def read_credential_owner(owner: str) -> str:
    return _read(owner, CREDENTIAL)


def singles_owner(credential_id: str) -> str:
    return f"{SINGLES}/{credential_id}"


def read_singles_owner(owner: str) -> str:
    return _read(owner, SINGLES)


def _read(owner: str, kind: str) -> str:
    known, _, credential_id = owner.partition("/")
    if known != kind:
        raise ValueError(f"not the owner of a {kind}: {owner!r}")
    return credential_id


MESSAGE_QUEUE = "message.batch"
SINGLE_QUEUE = "message.single"


class SendMessages(SendBatch, frozen=True, tag="messages"):
    """Send the open messages of a batch by its job's credential, if it still has this turn."""

    queue: ClassVar[str] = MESSAGE_QUEUE


class SendSingles(RetriedTask, frozen=True, tag="singles"):
    queue: ClassVar[str] = SINGLE_QUEUE
    credential_id: str
