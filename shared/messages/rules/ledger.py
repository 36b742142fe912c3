"""The ledger: the state of each message, and its moves.

    unsent ──write ahead──> sending ──answer──> sent ──> delivered ──> read
     ^                        │ └──no answer, or a death──> unknown ──late answer, callback──> ...
     └────── not now ─────────┘
    failed, invalid: from an answer, or from a callback, at any time

A message without an entry is `unsent`. Three things change an entry:
- **an answer** to a call: it counts if the entry is `sending` or `unknown`, and only for its own attempt;
- **a callback** of the provider: it only ever raises the rank. So it may overtake the answer, come twice, and come in
any order. For an earlier attempt only good news counts;
- **recovery** after the death of the calling process: `unknown`, or `unsent` again if a repeat does no harm.

In the end an entry is **redacted**: it loses its recipient and the provider's words for good, unless it is called
again. It counts as before.

A *tally* counts the entries of a batch by state. A change of entries adds the difference (`difference`) in the same
transaction, so the tallies are exact at any moment.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from shared.messages.rules.answers import (
    ADDRESS_AT_FAULT,
    DETAIL_CHARACTERS,
    NEVER_IN_TIME,
    Answer,
    CallAccepted,
    CallRefused,
    CallUnanswered,
    LoginRefused,
    NotNow,
    Reason,
)
from shared.messages.rules.singles import Pending, SingleWish

EARLIER_ATTEMPTS = 5
TOO_FAST_OF_AN_ATTEMPT = 20
"""Refusals in a row because calls come too fast that count as one attempt: a permanent refusal of one recipient must
not hold back the others for ever."""
PROVIDER_ID_CHARACTERS = 255
REPEATED = "repeated"
"""The name in a tally of messages called a second time, though the first call may have succeeded."""


class MessageState(StrEnum):
    """The state of a message."""

    UNSENT = "unsent"
    SENDING = "sending"  # written ahead of its call, which may have begun
    UNKNOWN = "unknown"  # perhaps called, with an unknown outcome
    SENT = "sent"  # the provider has it
    DELIVERED = "delivered"  # the recipient has it
    READ = "read"  # the recipient has opened it
    FAILED = "failed"  # refused, not delivered, or given up
    INVALID = "invalid"  # never to be sent to this address


RANKS: dict[MessageState, int] = {
    MessageState.UNSENT: 0,
    MessageState.SENDING: 1,
    MessageState.UNKNOWN: 1,
    MessageState.SENT: 2,
    MessageState.DELIVERED: 3,
    MessageState.READ: 4,
    MessageState.FAILED: 5,
    MessageState.INVALID: 6,
}
"""A callback only ever raises the rank of an entry."""

_OPEN = frozenset({MessageState.SENDING, MessageState.UNKNOWN})
_PENDING = frozenset({MessageState.UNSENT, MessageState.SENDING})
_GOOD = frozenset({MessageState.SENT, MessageState.DELIVERED, MessageState.READ})


class EarlierAttempt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    attempt: int
    state: MessageState
    reason: str = ""
    detail: str = ""
    ref: str = ""


class Message(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of the ledger: a message to one recipient.

    `attempt` counts its calls; `round` is the job's at the last call. While it is `sending`, `owner` names the caller,
    and until `until` (the database's time) no other worker may judge the outcome. `refused` counts fruitless attempts,
    `too_fast` the calls since the last of them. `ref` is the provider's name for it (`ref_of`). `repeats_within` names
    the provider at the call if a second call does no harm there. Every change raises `v`. A message without a job is a
    `single` one, and `pending` until nothing is left to do; `ledger_since` is the end of that, and `personal_since` the
    same until it is redacted. A redacted message has an empty `to` and `detail`. `locale` is that of its template if it
    differs from the job's.
    """

    id: str
    app_id: str
    credential_id: str
    to: str = ""
    state: MessageState = MessageState.UNSENT
    reason: str = ""
    detail: str = ""
    attempt: int = 0
    round: int = 0
    owner: str = ""
    v: int = 0
    until: datetime | None = None
    ref: str = ""
    refused: int = 0
    too_fast: int = 0
    repeated: int = 0
    repeats_within: str = ""
    earlier: tuple[EarlierAttempt, ...] = ()
    answered_at: datetime | None = None
    delivered_at: datetime | None = None
    read_at: datetime | None = None
    redacted_at: datetime | None = None
    locale: str = ""
    single: SingleWish | None = None
    pending: Pending | None = None
    personal_since: datetime | None = None
    ledger_since: datetime | None = None

    @property
    def is_unsent(self) -> bool:
        return self.state is MessageState.UNSENT

    @property
    def is_sending(self) -> bool:
        return self.state is MessageState.SENDING

    @property
    def is_unknown(self) -> bool:
        return self.state is MessageState.UNKNOWN


class News(Struct, frozen=True, kw_only=True):
    """The news of a callback: the state that the message has reached. `attempt` is 0 if unknown; `ref` is the
    provider's name for that attempt, if given."""

    state: MessageState
    at: datetime
    attempt: int = 0
    ref: str = ""
    reason: str = ""
    detail: str = ""


def batch_prefix(incarnation: str, ordinal: int) -> str:
    return f"{incarnation}.{ordinal:08d}."


def entry_id(incarnation: str, ordinal: int, row: int) -> str:
    """The id of the message to the recipient in this row of a batch: the same at every reading of the batch."""
    return f"{batch_prefix(incarnation, ordinal)}{row:05d}"


def prefix_of(message_id: str) -> str:
    """The prefix of the ids of all entries of its batch; `""` for a single message."""
    batch, dot, _ = message_id.rpartition(".")
    return f"{batch}{dot}"


def incarnation_of(message_id: str) -> str:
    """The incarnation of its job; for a single message its id, which is no incarnation."""
    return message_id.partition(".")[0]


def ref_of(credential_id: str, provider_id: str) -> str:
    """The provider's name for a message in the ledger: it contains the account, because ids of two accounts may be
    equal. `""` without an id, or for an id that cannot be stored."""
    known = provider_id and len(provider_id) <= PROVIDER_ID_CHARACTERS and provider_id.isprintable()
    return f"{credential_id}/{provider_id}" if known else ""


def attempt_of(message: Message, ref: str) -> int:
    """The attempt with this provider name; 0 if unknown."""
    if not ref:
        return 0
    if message.ref == ref:
        return message.attempt
    return next((earlier.attempt for earlier in message.earlier if earlier.ref == ref), 0)


def state_of_refusal(reason: str) -> MessageState:
    """The final state of a message that did not reach its recipient for this reason."""
    return MessageState.INVALID if reason in ADDRESS_AT_FAULT else MessageState.FAILED


def write_ahead(
    message: Message,
    *,
    owner: str,
    until: datetime,
    round: int = 0,  # noqa: A002 - the field
    to: str = "",
    repeats_within: str = "",
) -> Message:
    """The entry right before its next call, to `to` if it has lost its recipient. `repeats_within` is stored now,
    because the account's fields may change later."""
    return _change(
        message,
        to=message.to or to,
        redacted_at=None,
        state=MessageState.SENDING,
        attempt=message.attempt + 1,
        round=round,
        owner=owner,
        until=until,
        repeats_within=repeats_within,
        reason="",
        detail="",
        ref="",
        refused=message.refused if round == message.round else 0,
        too_fast=message.too_fast if round == message.round else 0,
        repeated=message.repeated + message.is_unknown,
        earlier=_with_last(message),
    )


def answer(
    message: Message, attempt: int, given: Answer, *, at: datetime, attempts: int, repeats: bool = False
) -> Message | None:
    """The entry after the answer to this attempt; `None` if nothing changes. `attempts` limits the fruitless ones.
    `repeats`: messages with unknown outcomes are sent again."""
    if attempt != message.attempt:
        return None
    if message.state not in _OPEN:
        # A callback was faster. Later callbacks may name the provider's id.
        known = ref_of(message.credential_id, given.provider_id) if isinstance(given, CallAccepted) else ""
        return _change(message, ref=known) if known and not message.ref else None
    match given:
        case CallAccepted(provider_id):
            return _end(message, MessageState.SENT, at, ref=ref_of(message.credential_id, provider_id))
        case CallRefused(reason, detail):
            return _end(message, state_of_refusal(reason), at, reason=reason, detail=detail)
        case NotNow(detail, too_fast):
            refused_so_often = message.too_fast + 1 if too_fast else 0
            message = replace(message, too_fast=refused_so_often % TOO_FAST_OF_AN_ATTEMPT)
            return _refused_for_now(message, detail, counts=not message.too_fast, at=at, attempts=attempts)
        case LoginRefused(detail):
            return _refused_for_now(message, detail, counts=False, at=at, attempts=attempts)
        case CallUnanswered(detail):
            if message.state is MessageState.UNKNOWN:
                return None
            if repeats and message.refused + 1 < attempts:
                return _repeat(message, detail, at)
            return _change(message, state=MessageState.UNKNOWN, owner="", detail=detail[:DETAIL_CHARACTERS])
        case _:
            assert_never(given)


def hear(message: Message, news: News) -> Message | None:
    """The entry after a callback; `None` if nothing changes."""
    is_of_last_attempt = news.attempt == message.attempt
    if RANKS[news.state] <= RANKS[message.state] or not (is_of_last_attempt or news.state in _GOOD):
        return None
    if message.state is MessageState.UNSENT and not message.attempt:
        return None  # nothing was ever sent
    return _change(
        message,
        state=news.state,
        reason=news.reason,
        detail=news.detail[:DETAIL_CHARACTERS],
        owner="",
        ref=message.ref or (news.ref if is_of_last_attempt else ""),
        delivered_at=news.at if news.state is MessageState.DELIVERED else message.delivered_at,
        read_at=news.at if news.state is MessageState.READ else message.read_at,
    )


def recover(message: Message, *, owner: str, now: datetime, repeats: bool) -> Message | None:
    """The entry that a dead process left: `unsent` if it may be repeated, otherwise `unknown`. `None` if it was not
    left, or its call may still go on."""
    abandoned = message.state is MessageState.SENDING and message.owner != owner
    if not abandoned or (message.until is not None and now < message.until):
        return None
    if repeats:
        return _change(message, state=MessageState.UNSENT, owner="", repeated=message.repeated + 1)
    return _change(message, state=MessageState.UNKNOWN, owner="")


def give_back(message: Message) -> Message:
    return _change(message, state=MessageState.UNSENT, attempt=message.attempt - 1, owner="")


def reject(message: Message, reason: Reason, *, at: datetime, detail: str = "") -> Message:
    """The entry of a recipient that is never called."""
    state = MessageState.FAILED if reason in NEVER_IN_TIME else MessageState.INVALID
    return _end(message, state, at, reason=reason, detail=detail)


def postpone(message: Message, due: datetime) -> Message | None:
    """The entry of a single message that is due later; `None` if nothing is left to do."""
    if message.pending is None or message.pending.due >= due:
        return None
    return _change(message, pending=replace(message.pending, due=due))


def redact(message: Message, *, at: datetime) -> Message:
    earlier = tuple(replace(attempt, detail="") for attempt in message.earlier)
    return _change(message, to="", detail="", earlier=earlier, redacted_at=message.redacted_at or at)


def is_to_be_sent(message: Message | None, *, round: int, states: frozenset[MessageState]) -> bool:  # noqa: A002
    """Whether this round sends the message: the first round sends all unsent ones; a retry sends those of an earlier
    round in one of the wanted `states`, and those of this round that wait for another attempt."""
    if message is None:
        return not round or MessageState.UNSENT in states
    if message.round == round or not round:
        return message.state is MessageState.UNSENT
    return message.state in states


def difference(before: Message | None, after: Message) -> dict[str, int]:
    """The counts that this change adds to the batch's tally. `unsent` is never counted: it is the rest of the planned
    messages."""
    tally: Counter[str] = Counter()
    for entry, sign in ((before, -1), (after, 1)):
        if entry is None:
            continue
        if entry.state is not MessageState.UNSENT:
            tally[entry.state.value] += sign
        if entry.reason:
            tally[f"reasons.{entry.reason}"] += sign
        tally[REPEATED] += sign * entry.repeated
    return {name: count for name, count in tally.items() if count}


def add_tallies(tallies: Iterable[dict[str, int]]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for tally in tallies:
        sums.update(tally)
    return {name: count for name, count in sums.items() if count}


def _repeat(message: Message, detail: str, at: datetime) -> Message:
    return _change(
        message,
        state=MessageState.UNSENT,
        owner="",
        detail=detail[:DETAIL_CHARACTERS],
        refused=message.refused + 1,
        repeated=message.repeated + 1,
        answered_at=at,
    )


def _refused_for_now(message: Message, detail: str, *, counts: bool, at: datetime, attempts: int) -> Message:
    refused = message.refused + counts
    # The job may have counted an unknown message and closed, so that no worker would send it again.
    if refused >= attempts or message.state is MessageState.UNKNOWN:
        return _end(message, MessageState.FAILED, at, reason=Reason.GAVE_UP, detail=detail, refused=refused)
    return _change(
        message, state=MessageState.UNSENT, owner="", detail=detail[:DETAIL_CHARACTERS], refused=refused, answered_at=at
    )


def _end(message: Message, state: MessageState, at: datetime, **fields: object) -> Message:
    detail = str(fields.pop("detail", ""))[:DETAIL_CHARACTERS]
    return _change(message, state=state, owner="", detail=detail, answered_at=at, **fields)


def _change(message: Message, **fields: object) -> Message:
    if message.redacted_at is not None:
        fields["detail"] = ""  # later words of a provider may name the recipient too
    changed = replace(message, v=message.v + 1, **fields)
    return changed if changed.single is None else _with_what_is_needed(changed, changed.single)


def _with_what_is_needed(message: Message, single: SingleWish) -> Message:
    """A single message, pending until nothing is left to do. An ended one does not begin again, because its content is
    gone."""
    if message.ledger_since is not None:
        late = message.state in _PENDING
        return replace(message, state=MessageState.FAILED, reason=Reason.GAVE_UP) if late else message
    if message.state in _PENDING:
        waits = Pending(credential_id=message.credential_id, namespace=single.namespace, due=single.due)
        return replace(message, pending=message.pending or waits)
    since = message.answered_at or message.until or single.due
    return replace(message, pending=None, ledger_since=since, personal_since=None if message.redacted_at else since)


def _with_last(message: Message) -> tuple[EarlierAttempt, ...]:
    if not message.attempt:
        return ()
    if message.earlier and message.earlier[-1].attempt == message.attempt:
        return message.earlier  # since then it was written ahead, and given back
    last = EarlierAttempt(
        attempt=message.attempt, state=message.state, reason=message.reason, detail=message.detail, ref=message.ref
    )
    return (*message.earlier, last)[-EARLIER_ATTEMPTS:]
