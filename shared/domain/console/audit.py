"""Audit: acts, their doers and their outcomes.

An act is recorded before it is done (`begun`), and its end after it. So every change has a record: a crash in between
leaves `begun`, whose outcome is unknown. A service's acts on its own single schedules are not recorded by default,
because there may be a hundred million of them a day.

An act of Carillon itself (`system`) is recorded after it, once, under an id that follows from its content
(`shared.domain.console.system_records`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

UNKNOWN_AFTER = timedelta(minutes=1)
"""An act that is `begun` for longer is shown as unknown, until its end is recorded."""

REASON_CHARACTERS = 1_000
CHANGE_BYTES = 16 * 1024
"""Maximum of the changed fields that is stored, before and after each."""

ENDING_VERBS = frozenset({"stop", "delete", "cancel", "discard", "revoke", "redact"})
"""The last words of destructive acts, for which a deployment may demand a reason."""

SYSTEM = "system"
"""The namespace of acts without a caller."""

OF_NAMESPACES = frozenset({"schedule", "dead-letter", "signing-secret", "subscription", "subscription-topic"})
"""The kinds of things that belong to a namespace, and to no app."""


class ActOutcome(StrEnum):
    """How an act ended."""

    BEGUN = "begun"
    DONE = "done"
    REFUSED = "refused"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Actor(Struct, frozen=True, kw_only=True):
    """The doer of an act: the caller, and the address of the request. `way` is the authentication: a `token`, a `proxy`
    that named the caller, or the `session` of a browser. For acts of `system`, `name` is the role of the process."""

    namespace: str
    name: str
    way: str = ""
    address: str = ""

    @property
    def kind(self) -> str:
        """`user`, `token` or `system`."""
        return self.namespace.partition(":")[0]


class ActedOn(Struct, frozen=True, kw_only=True):
    """The object of an act: a job, an app, a schedule. It belongs to `app_id` and `namespace`; `name` is its usual name
    if known, for a job the names of its templates."""

    kind: str
    id: str
    name: str = ""
    app_id: str = ""
    namespace: str = ""


class AuditRecord(Struct, frozen=True, kw_only=True):
    """An act, such as `job.stop`. Ids sort by time. `status` is that of the answer, 0 before it; `reason` is the
    caller's. `count` of an act on many things is the number of matching ones, and in the end of those acted on.
    `before` and `after` have the changed fields of an app, a template, a user or a token. `request_id` is also in the
    log, and `trace` is the id of its trace."""

    id: str
    at: datetime
    act: str
    who: Actor
    on: ActedOn
    via: str = ""
    request_id: str = ""
    trace: str = ""
    reason: str = ""
    outcome: ActOutcome = ActOutcome.BEGUN
    status: int = 0
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    count: int = 0

    def outcome_at(self, now: datetime) -> ActOutcome:
        if self.outcome is ActOutcome.BEGUN and self.at < now - UNKNOWN_AFTER:
            return ActOutcome.UNKNOWN
        return self.outcome


Fields = Mapping[str, Any]


def compare(before: Fields, after: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """The different fields, before and after. A value that is too large is replaced by its size."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name) and name != "updatedAt"]
    return _chosen(before, names), _chosen(after, names)


def _chosen(fields: Fields, names: Sequence[str]) -> dict[str, Any]:
    sizes = {name: len(msgspec.json.encode(fields[name])) for name in names if name in fields}
    return {
        name: fields[name] if size <= CHANGE_BYTES // len(sizes) else f"({size:,} bytes)"
        for name, size in sizes.items()
    }


def kind_of(act: str) -> str:
    """The kind of an act's objects: `job` of `job.stop`."""
    return act.partition(".")[0]


_TOO_MANY = frozenset({"schedule", "message"})


def is_written_of_services(act: str) -> bool:
    """Whether a service's act on its own things is recorded: all but those on single schedules and messages."""
    return kind_of(act) not in _TOO_MANY or act.endswith("-many")


def ends_something(act: str) -> bool:
    """Whether the act is destructive: a deployment may demand a reason."""
    return act.rpartition(".")[2] in ENDING_VERBS


def outcome_of(status: int) -> ActOutcome:
    """The outcome of an act with this answer. If a server was away, its part in the act is unknown."""
    if status < 400:
        return ActOutcome.DONE
    if status < 500:
        return ActOutcome.REFUSED
    return ActOutcome.UNKNOWN if status == 503 else ActOutcome.FAILED
