"""Processes as they tell of themselves, their settings, and their work minute by minute."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from carillon.displays import Short


class InHand(Struct, frozen=True, kw_only=True, rename="camel"):
    """Something that a process works on: `what` says where it came from, `id` what it is about."""

    what: str
    id: str
    since: datetime | None = None


class Process(Short, frozen=True, kw_only=True, rename="camel"):
    """A process, as it told of itself at `seen_at`. `state` is `alive`, `silent` or `gone`. `settings_digest` is the
    same where settings are the same. `in_hand` shows the oldest of `in_hand_count` things, and `lanes` how many of
    Kafka's lanes are in which state. A figure that a process of its roles does not measure is 0 or `None`."""

    id: str
    roles: tuple[str, ...]
    host: str
    version: str
    state: str
    started_at: datetime
    seen_at: datetime
    phase: str
    settings_digest: str = ""
    failing_checks: tuple[str, ...] = ()
    in_hand: tuple[InHand, ...] = ()
    in_hand_count: int = 0
    lanes: Mapping[str, int] = {}
    loop_lag_seconds: float | None = None
    memory_bytes: int | None = None
    clock_skew_seconds: float | None = None
    feedback_lag_records: int | None = None
    oldest_visible_seconds: float | None = None
    oldest_batch_seconds: float | None = None
    occurrences_pending: int | None = None


class Minute(Short, frozen=True, kw_only=True, rename="camel"):
    """The work of all processes in the minute from `at` on: `recipients` of push jobs by outcome, `messages` by the
    answer of their provider, `deliveries` of the bus by outcome, `fired` by callback and outcome (`http/fired`),
    `lateness` by the end of its bucket."""

    at: datetime
    seconds: float = 60.0
    recipients: Mapping[str, int] = {}
    messages: Mapping[str, int] = {}
    deliveries: Mapping[str, int] = {}
    fired: Mapping[str, int] = {}
    lateness: Mapping[str, int] = {}
    retries: int = 0
    dead_letters: int = 0
    requests: int = 0
    server_errors: int = 0
    feedback: int = 0


class Setting(Struct, frozen=True, kw_only=True, rename="camel"):
    """A setting of the API process that answered; `value` and `default` are as a settings file has them, with secrets
    masked. `rare` ones few deployments change."""

    name: str
    value: str
    default: str
    sentence: str = ""
    rare: bool = False
