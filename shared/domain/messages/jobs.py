"""Jobs that send messages: what they have besides what all jobs have (`Job.options`), and when each of their messages
is due."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from shared.domain.jobs.jobs import TRANSITIONS as JOB_TRANSITIONS
from shared.domain.jobs.jobs import Job, JobStatus
from shared.domain.messages.channels import Channel
from shared.domain.messages.credentials import OnUnknown, SendRetry
from shared.domain.messages.ledger import Message, MessageState, is_to_be_sent

MESSAGE_SERVICE = "message"
"""The `service` of jobs that send by a credential."""

MESSAGE_JOB_TRANSITIONS = JOB_TRANSITIONS | {
    JobStatus.COMPLETED: frozenset({JobStatus.RUNNING}),
    JobStatus.STOPPED: frozenset({JobStatus.RUNNING}),
}
"""Such a job may be taken up again after its end."""


class Duplicates(StrEnum):
    """What becomes of a recipient who stands in an audience several times."""

    ONCE = "once"  # one message
    EACH = "each"  # a message each time


class Halt(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A job is held once more than `minimum` of its messages, and more than this `share` of those with an outcome, have
    bounced for good."""

    share: float = 0.1
    minimum: int = 10


class MessageOptions(Struct, frozen=True, kw_only=True):
    """What a job that sends messages has of its own.

    Its recipients stand in the column `recipient_column`, and their addresses are of this `channel`; phone numbers
    without a country are of `default_region`. Those without a template in their own locale get that of `locale`.
    `list` names what one can unsubscribe from; what is `transactional` reaches those too who have. A batch has
    `batch_size` recipients. There must be no more than `max_recipients`, where it is not 0.
    """

    channel: Channel
    recipient_column: str
    locale: str = "en"
    default_region: str = ""
    duplicates: Duplicates = Duplicates.ONCE
    on_unknown: OnUnknown = OnUnknown.HOLD
    halt: Halt | None = None
    share: int = 1
    list: str = ""
    transactional: bool = False
    max_recipients: int = 0
    batch_size: int = 1_000


class Resending(Struct, frozen=True):
    """Which messages a job sends that was taken up again: those in these states that an earlier round left so."""

    round: int = 0
    states: frozenset[MessageState] = frozenset()


def options_of(job: Job) -> MessageOptions:
    """What a job that sends messages has of its own."""
    return msgspec.convert(job.options, MessageOptions)


def options_as_fields(options: MessageOptions) -> dict[str, Any]:
    """What `options_of` reads."""
    fields: dict[str, Any] = msgspec.to_builtins(options)
    return fields


def due_at(message: Message | None, resending: Resending, retry: SendRetry, *, now: datetime) -> datetime | None:
    """When the message may be called: now, or later where it was refused for a moment or somebody else may still be at
    it; `None` for one that is not to be called at all."""
    if message is not None and message.state is MessageState.SENDING:
        return message.until or now
    if not is_to_be_sent(message, round=resending.round, states=resending.states):
        return None
    if message is None or not message.refused or message.answered_at is None or message.round != resending.round:
        return now
    return max(message.answered_at + retry.delay_after(message.refused), now)
