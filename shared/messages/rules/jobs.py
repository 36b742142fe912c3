"""Jobs of messages: their options, the due times, the rule that holds a job, and their figures from the ledger.

The ledger records what was sent, so a batch can return to its plan at any time: when its job is held, when an older
job needs its place, or when some of its messages are retried later (`not_before`). A settled batch returns when its
job is reopened. A planned message without an entry in the ledger is `unsent`, so the states always add up to the
planned messages.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from shared.audience.rules.columns import MAX_NAME_CHARACTERS
from shared.core.documents import MESSAGES_TOPIC, OwnEvent, without_empty
from shared.core.errors import Invalid
from shared.core.instants import format_instant
from shared.jobs.rules.batches import SETTLED, TRANSITIONS, BatchStatus, Receipt, add_counts
from shared.jobs.rules.jobs import TRANSITIONS as JOB_TRANSITIONS
from shared.jobs.rules.jobs import Job, JobStatus
from shared.messages.rules.answers import NEVER_IN_TIME, Channel, Reason
from shared.messages.rules.credentials import OnUnknown, SendRetry
from shared.messages.rules.ledger import REPEATED, Message, MessageState, is_to_be_sent

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


class Repeating(Struct, frozen=True):
    """The repeatable messages with an unknown outcome: all if `wanted`, otherwise those called at the provider that
    `within` names, which drops second calls."""

    wanted: bool = False
    within: str = ""

    @property
    def allows_own(self) -> bool:
        return self.wanted or bool(self.within)

    def allows(self, message: Message) -> bool:
        """Whether this message is sent again, whichever worker called it."""
        return self.wanted or bool(self.within and message.repeats_within == self.within)


_BOUNCED = (Reason.HARD_BOUNCE, Reason.SOFT_BOUNCE, Reason.REFUSED, Reason.UNREGISTERED)
_ANSWERED = (
    MessageState.SENT,
    MessageState.DELIVERED,
    MessageState.READ,
    MessageState.FAILED,
    MessageState.INVALID,
)
_NEVER_CALLED = (
    Reason.MALFORMED,
    Reason.SUPPRESSED,
    Reason.UNSUBSCRIBED,
    Reason.ADDRESS_CHANGED,
    Reason.UNRENDERED,
    *NEVER_IN_TIME,
)


class Bounces(Struct, frozen=True):
    """The messages of a job that bounced or were refused, and those that the provider answered (`outcomes`)."""

    bounced: int = 0
    outcomes: int = 0

    def without(self, earlier: "Bounces") -> "Bounces":
        return Bounces(self.bounced - earlier.bounced, self.outcomes - earlier.outcomes)


def count_bounces(tally: Mapping[str, int]) -> Bounces:
    bounced = sum(tally.get(f"reasons.{reason}", 0) for reason in _BOUNCED)
    answered = sum(tally.get(state.value, 0) for state in _ANSWERED)
    return Bounces(bounced, answered - sum(tally.get(f"reasons.{reason}", 0) for reason in _NEVER_CALLED))


def is_to_be_held(counted: Bounces, halt: Halt) -> bool:
    return counted.bounced > halt.minimum and counted.bounced > halt.share * counted.outcomes


MESSAGE_TRANSITIONS: Mapping[BatchStatus, frozenset[BatchStatus]] = TRANSITIONS | {
    BatchStatus.SENDING: TRANSITIONS[BatchStatus.SENDING] | {BatchStatus.PLANNED, BatchStatus.DROPPED},
    **{status: frozenset({BatchStatus.PLANNED}) for status in SETTLED},
}
_SENT = (MessageState.SENT, MessageState.DELIVERED, MessageState.READ)
_FAILED = (MessageState.FAILED, MessageState.UNKNOWN)


def receipt_of_entries(entries: Collection[Message]) -> Receipt:
    """The receipt of a batch's messages, in the words of all jobs: `unknown` ones count as failed, invalid ones as
    skipped."""
    reasons = Counter(str(entry.reason) for entry in entries if entry.reason)
    return receipt_of_states(Counter(entry.state.value for entry in entries), reasons)


def receipt_of_states(states: Mapping[str, int], reasons: dict[str, int]) -> Receipt:
    unknown = states.get(MessageState.UNKNOWN, 0)
    return Receipt(
        sent=sum(states.get(state, 0) for state in _SENT),
        failed=sum(states.get(state, 0) for state in _FAILED),
        skipped=states.get(MessageState.INVALID, 0),
        reasons=add_counts(reasons, {MessageState.UNKNOWN.value: unknown} if unknown else {}),
    )


_REASONS = "reasons."
_COUNTED = tuple(state for state in MessageState if state is not MessageState.UNSENT)


class MessageCounts(Struct, frozen=True, kw_only=True):
    """The messages of a job: the `planned` ones, and the ledger's tally at the same moment, in this `round` of the job.
    `duplicates` are rows that repeat an earlier one; they are not planned."""

    planned: int = 0
    duplicates: int = 0
    tally: dict[str, int] = {}
    round: int = 0

    @property
    def by_state(self) -> dict[str, int]:
        return {state.value: self.tally.get(state.value, 0) for state in _COUNTED}

    @property
    def unsent(self) -> int:
        return max(self.planned - sum(self.by_state.values()), 0)

    @property
    def repeated(self) -> int:
        return self.tally.get(REPEATED, 0)

    @property
    def reasons(self) -> dict[str, int]:
        found = {name.removeprefix(_REASONS): count for name, count in self.tally.items() if name.startswith(_REASONS)}
        return {reason: count for reason, count in found.items() if count}

    @property
    def receipt(self) -> Receipt:
        """The same in the words of all jobs, without `unsent` and `sending` messages."""
        return receipt_of_states(self.by_state, self.reasons)


class Ahead(Struct, frozen=True):
    """The `jobs` before or beside a job, their unsent `messages`, and the `rate` left for the job in messages a second;
    0 if its credential does not send."""

    jobs: int = 0
    messages: int = 0
    rate: float = 0.0


class Forecast(Struct, frozen=True):
    """The seconds until a job sends, and the time of its end; `None` if unknown. `messages` of `jobs` go first."""

    jobs: int = 0
    messages: int = 0
    starts_in: float | None = None
    ends_at: datetime | None = None


def counted_states() -> Sequence[str]:
    """The names of the states in a tally; `unsent` is not counted."""
    return [state.value for state in _COUNTED]


def moves_on(job: Job) -> bool:
    match job.status:
        case JobStatus.SCHEDULED | JobStatus.RUNNING:
            return job.open
        case JobStatus.PAUSED | JobStatus.TRIPPED | JobStatus.STOPPED | JobStatus.COMPLETED:
            return False
        case _:
            assert_never(job.status)


def forecast(job: Job, counts: MessageCounts, ahead: Ahead, *, now: datetime) -> Forecast:
    if not moves_on(job):
        return Forecast()
    if ahead.rate <= 0:
        return Forecast(ahead.jobs, ahead.messages)
    until_start = max((job.starts - now).total_seconds(), 0.0) if job.waits else 0.0
    starts_in = round(max(ahead.messages / ahead.rate, until_start), 1)
    ends_at = None
    if job.plan.end is not None and counts.unsent:
        ends_at = now + timedelta(seconds=starts_in + counts.unsent / ahead.rate)
    return Forecast(ahead.jobs, ahead.messages, starts_in, ends_at)


def share_of(own: int, others: Mapping[str, int]) -> float:
    """The part of a credential's rate for a job with the share `own` beside the others."""
    return own / (own + sum(others.values()))


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
