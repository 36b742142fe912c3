"""Audit: who did what, and how it ended.

An act is written down before it is done (`begun`), and its end behind it. So nothing that changed something is missing:
a process that dies in between leaves `begun`, of which nobody can say how it ended. A service's acts on its own
schedules, one by one, are not written down unless a deployment wants it: there may be a hundred million of them a day.

An act of Carillon by itself (`system`) is written down behind it, once, under an id that follows from what it tells
(`shared.domain.console.system_records`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct

UNKNOWN_AFTER = timedelta(minutes=1)
"""An act that is `begun` for longer is shown as unknown; if it ends later after all, its end is shown then."""

REASON_CHARACTERS = 1_000
CHANGE_BYTES = 16 * 1024
"""How much of what an act changed is kept, before and after each."""

ENDING_VERBS = frozenset({"stop", "delete", "cancel", "discard", "revoke", "purge", "redact"})
"""The last words of acts after which something is over or gone, for which a deployment may demand a reason."""

SYSTEM = "system"
"""The namespace of what nobody has asked for."""

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
    """The doer of an act: the caller, and the address that the request came from. `way` is how they proved who they
    are: by a `token`, a `proxy` that named them, or the `session` of a browser that is signed in. An act that nobody
    has asked for was done by `system`, and `name` is the role of the process that did it."""

    namespace: str
    name: str
    way: str = ""
    address: str = ""

    @property
    def kind(self) -> str:
        """`user`, `token` or `system`."""
        return self.namespace.partition(":")[0]


class ActedOn(Struct, frozen=True, kw_only=True):
    """The object of an act: a job, an app, a schedule. `app_id` and `namespace` are what it belongs to, `name` what
    people call it, where that is known: of a job the names of its templates."""

    kind: str
    id: str
    name: str = ""
    app_id: str = ""
    namespace: str = ""


class AuditRecord(Struct, frozen=True, kw_only=True):
    """An act, such as `job.stop`. Ids sort by time. `status` is that of the answer, 0 until there is one; `reason` is
    what the caller gave for it. `count` is how many things an act on many is about: how many matched, and in the end
    how many it was done to. `before` and `after` have what it changed, by field, where the act is on an app, a
    template, a user or a token. `request_id` is the request's, in the log too, and `trace` the id of its trace."""

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
        """How it ended, as far as anybody knows at that moment."""
        if self.outcome is ActOutcome.BEGUN and self.at < now - UNKNOWN_AFTER:
            return ActOutcome.UNKNOWN
        return self.outcome


Fields = Mapping[str, Any]


def compare(before: Fields, after: Fields) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that differ: as they were, and as they are. A value that is too large gives its size."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name) and name != "updatedAt"]
    return _chosen(before, names), _chosen(after, names)


def _chosen(fields: Fields, names: Sequence[str]) -> dict[str, Any]:
    sizes = {name: len(msgspec.json.encode(fields[name])) for name in names if name in fields}
    return {
        name: fields[name] if size <= CHANGE_BYTES // len(sizes) else f"({size:,} bytes)"
        for name, size in sizes.items()
    }


def kind_of(act: str) -> str:
    """The kind of things that an act is done to: `job` of `job.stop`."""
    return act.partition(".")[0]


_TOO_MANY = frozenset({"schedule", "message"})


def is_written_of_services(act: str) -> bool:
    """Whether this act is written down of a service, too, upon what is its own: but for single schedules and messages,
    all are."""
    return kind_of(act) not in _TOO_MANY or act.endswith("-many")


def ends_something(act: str) -> bool:
    """Whether something is over or gone after it: a deployment may demand a reason for that."""
    return act.rpartition(".")[2] in ENDING_VERBS


def outcome_of(status: int) -> ActOutcome:
    """How an act ended that was answered so. If a server was away, its part in the act is unknown."""
    if status < 400:
        return ActOutcome.DONE
    if status < 500:
        return ActOutcome.REFUSED
    return ActOutcome.UNKNOWN if status == 503 else ActOutcome.FAILED
