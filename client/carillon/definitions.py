"""Schedules and what they call: the values that `client.schedules` takes and gives."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import force_setattr

from carillon.values import Result, Short, encode, in_utc


class RabbitCallback(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to RabbitMQ: to `queue`, or to `exchange` with `routing_key`. The payload is any JSON."""

    payload: Any
    queue: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    headers: Mapping[str, str] | None = None


class HttpCallback(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An HTTP call, done when it is answered with 2xx; signed by Standard Webhooks with a `secret` (`whsec_…`), which
    an answer does not show."""

    url: str
    method: str = "POST"
    headers: Mapping[str, str] | None = None
    payload: Any | UnsetType = UNSET
    secret: str | None = None


class KafkaCallback(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record for Kafka. The payload is any JSON."""

    payload: Any
    topic: str
    key: str | None = None
    headers: Mapping[str, str] | None = None


Callback = RabbitCallback | HttpCallback | KafkaCallback


class RabbitBody(Struct, frozen=True, tag_field="type", tag="rabbitmq"):
    """Its form in a body."""

    data: RabbitCallback


class HttpBody(Struct, frozen=True, tag_field="type", tag="http"):
    """Its form in a body."""

    data: HttpCallback


class KafkaBody(Struct, frozen=True, tag_field="type", tag="kafka"):
    """Its form in a body."""

    data: KafkaCallback


CallbackBody = RabbitBody | HttpBody | KafkaBody


def body_of(callback: Callback) -> CallbackBody:
    """The callback in its form in a body."""
    match callback:
        case RabbitCallback():
            return RabbitBody(callback)
        case HttpCallback():
            return HttpBody(callback)
        case KafkaCallback():
            return KafkaBody(callback)


class ScheduleState(StrEnum):
    """The state of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"
    """Nothing of it is left to fire."""


class OutcomeResult(StrEnum):
    """How an attempt ended."""

    FIRED = "fired"
    FAILED = "failed"
    """It will be attempted again."""
    SKIPPED = "skipped"
    """The misfire rule gave it up."""
    DEAD = "dead"
    """It was the last attempt: the instant is a dead letter."""


class FireWithin(Struct, frozen=True):
    """A misfire rule: what is found later than this is given up."""

    fire_within_seconds: float


Misfire = Literal["fire", "skip"] | FireWithin


class Retry(Struct, frozen=True, kw_only=True):
    """How often a refused instant is attempted (1 to 100), and the pauses between."""

    attempts: int = 10
    first_delay_seconds: float = 5.0
    factor: float = 3.0
    cap_seconds: float = 3_600.0


class _Content(Struct, frozen=True, kw_only=True):
    """The fields that a request and an answer have in common."""

    key: str = ""
    instants: Sequence[datetime] = field(default=(), name="schedules")
    cron: str | None = None
    timezone: str | None = None
    every_seconds: int | None = field(default=None, name="every")
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    max_occurrences: int | None = None
    window_seconds: float = 0.0
    misfire: Misfire = "fire"
    labels: Mapping[str, str] = {}

    def __post_init__(self) -> None:
        instants = (in_utc(instant, f"instants[{index}]") for index, instant in enumerate(self.instants))
        force_setattr(self, "instants", tuple(instants))
        for bound in ("starts_at", "ends_at"):
            if (instant := getattr(self, bound)) is not None:
                force_setattr(self, bound, in_utc(instant, bound))


class Schedule(_Content, frozen=True, kw_only=True):
    """A schedule to be made: exactly one of `instants` (up to 10,000), `cron` (five fields, in the IANA zone
    `timezone`, by default UTC) and `every_seconds`.

    `starts_at`, `ends_at` and `max_occurrences` bound a recurrence. `window_seconds` delays all instants of the key by
    the same time below it. `misfire` says what becomes of what is found late: fire, skip, or fire within some seconds.
    Without `retry` the deployment's rule holds. `key` has 1 to 255 of letters, digits and `- _ . ~ :`.

    Raises:
        ValueError: an instant has no time zone.
    """

    callback: Callback
    retry: Retry | None = None

    def encoded(self) -> bytes:
        """The body of a request. Raises `TypeError` or `ValueError` where the payload has something that is not
        JSON."""
        fields = {each.encode_name: getattr(self, each.name) for each in msgspec.structs.fields(self)}
        given = {name: value for name, value in fields.items() if value not in _ABSENT}
        return encode(given | {"callback": body_of(self.callback)})


_ABSENT: tuple[object, ...] = (None, "", (), {})


class Outcome(Struct, frozen=True, kw_only=True):
    """One attempt: when it was due, when it was made, and how it ended."""

    due: datetime
    at: datetime
    late_ms: int
    attempt: int
    result: OutcomeResult
    error: str = ""


class StoredSchedule(_Content, frozen=True, kw_only=True):
    """A schedule as it is stored.

    `next` are up to 20 pending instants, with their delay in the window; `skipped` those that were past when it was
    made, in answers to create and put; `outcomes` the last 20 attempts, in the answer to get. A list shows none of
    these, nor `instants`. `next_try_at`, in the answer to get, is when the first call that failed is tried again.
    `created` tells a new one in the answer to create and put: not one that was there already, be it because an earlier
    attempt of the call had made it. `redacted` says that the callback is shown without its payload, headers, key and
    the path of its URL, because the caller has the role of a viewer there.
    """

    body: CallbackBody = field(name="callback")
    retry: Retry
    state: ScheduleState
    next: tuple[datetime, ...] = ()
    skipped: tuple[datetime, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    created_at: datetime
    updated_at: datetime
    redacted: bool = False
    created: bool = False
    next_try_at: datetime | None = None

    __repr__ = Short.__repr__

    @property
    def callback(self) -> Callback:
        """The callback of each instant; a secret is not shown."""
        return self.body.data


class DueInstant(Struct, frozen=True, kw_only=True):
    """An instant of the schedule with this key. It fires at `at`: at `due`, or when it is tried again. `attempts` were
    refused. `kind` is `once`, `series` (of a recurrence) or `asked` (fired by hand)."""

    namespace: str
    key: str
    due: datetime
    at: datetime
    attempts: int = 0
    kind: str = ""


class DueInstants(Struct, frozen=True, kw_only=True):
    """The instants that fire next, as they stood at `as_of`, the first one first: all that are due before `until`."""

    as_of: datetime
    until: datetime
    instants: tuple[DueInstant, ...]


class Fired(Struct, frozen=True):
    """An instant that was fired by hand: `id` is the message id."""

    id: str
    due: datetime


class ItemError(Struct, frozen=True):
    """The error of one item of many."""

    reason: str
    field: str | None = None


class BulkResult(Result, frozen=True, kw_only=True):
    """The result of the item with this index: `status` is the one that the item would have been answered with on its
    own."""

    key: str | None
    status: int
    error: ItemError | None = None

    @property
    def created(self) -> bool:
        """Whether it is new; one that was there with the same content is not, and is no error."""
        return self.status == HTTPStatus.CREATED
