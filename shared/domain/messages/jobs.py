"""The options of message jobs (`Job.options`), and the due times of their messages."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

from shared.domain.audience.csv_header import MAX_NAME_CHARACTERS
from shared.domain.errors import Invalid
from shared.domain.jobs.jobs import TRANSITIONS as JOB_TRANSITIONS
from shared.domain.jobs.jobs import Job, JobStatus
from shared.domain.messages.channels import Channel
from shared.domain.messages.credentials import OnUnknown, SendRetry
from shared.domain.messages.ledger import Message, MessageState, is_to_be_sent

MESSAGE_SERVICE = "message"
"""The `service` of jobs that send by a credential."""

LARGEST_SHARE = 100
MOST_RECIPIENTS = 10**12
_SENDING_TO_TOKENS = frozenset({"apns", "fcm"})

MESSAGE_JOB_TRANSITIONS = JOB_TRANSITIONS | {
    JobStatus.COMPLETED: frozenset({JobStatus.RUNNING}),
    JobStatus.STOPPED: frozenset({JobStatus.RUNNING}),
}
"""Unlike other jobs, these may be reopened after their end."""


class Duplicates(StrEnum):
    ONCE = "once"  # one message
    EACH = "each"  # a message each time


class Halt(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A job is held if more than `minimum` of its messages, and more than this `share` of the answered ones, have
    bounced or were refused."""

    share: float = 0.1
    minimum: int = 10


class MessageOptions(Struct, frozen=True, kw_only=True):
    """The options of a job that sends messages.

    The column `recipient_column` has addresses of this `channel`; phone numbers without a country belong to
    `default_region`. Recipients whose own locale has no template get that of `locale`. Recipients can unsubscribe from
    `list`, but still get `transactional` messages. A batch has `batch_size` recipients. `max_recipients` is a limit
    unless it is 0. A `dry_run` counts its messages and calls no provider.
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
    dry_run: bool = False


def check_options(options: MessageOptions) -> None:
    """Raise `Invalid` for the first field that breaks its rule; fields with types of their own are checked already."""
    if not options.recipient_column or len(options.recipient_column) > MAX_NAME_CHARACTERS:
        raise _invalid("recipientColumn", f"the name of a column, of up to {MAX_NAME_CHARACTERS} characters", None)
    if not 1 <= options.share <= LARGEST_SHARE:
        raise _invalid("share", f"an integer from 1 to {LARGEST_SHARE}", options.share)
    if not 0 <= options.max_recipients <= MOST_RECIPIENTS:
        raise _invalid("maxRecipients", f"an integer from 1 to {MOST_RECIPIENTS:,}, or 0 for no limit", None)
    if options.halt is not None and not 0 < options.halt.share <= 1:
        raise _invalid("haltOn.share", "a number above 0 and up to 1", options.halt.share)
    if options.halt is not None and options.halt.minimum < 0:
        raise _invalid("haltOn.minimum", "0 or more", options.halt.minimum)


def default_halt(channel: Channel) -> Halt | None:
    """Only mail has bounces that a reputation depends on."""
    return Halt() if channel is Channel.MAIL else None


def default_column(kind: str) -> str:
    return "token" if kind in _SENDING_TO_TOKENS else "recipient"


def _invalid(field: str, rule: str, value: object) -> Invalid:
    return Invalid(f"invalid {field}: it must be {rule}", field=field, value=value)


class Resending(Struct, frozen=True):
    """The messages that a reopened job sends: those in these states that an earlier round left."""

    round: int = 0
    states: frozenset[MessageState] = frozenset()


def options_of(job: Job) -> MessageOptions:
    return msgspec.convert(job.options, MessageOptions)


def options_as_fields(options: MessageOptions) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(options)
    return fields


def due_at(message: Message | None, resending: Resending, retry: SendRetry, *, now: datetime) -> datetime | None:
    """The time at which the message may be called: now, or later if it was refused for a moment or another worker may
    still call it; `None` if it must not be called."""
    if message is not None and message.state is MessageState.SENDING:
        return message.until or now
    if not is_to_be_sent(message, round=resending.round, states=resending.states):
        return None
    if message is None or not message.refused or message.answered_at is None or message.round != resending.round:
        return now
    return max(message.answered_at + retry.delay_after(message.refused), now)
