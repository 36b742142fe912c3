"""Carillon's own events: changes of jobs, messages and schedules.

The change of a thing stores its event (`shared/store/outbox.py`), and a fan-out publishes it
(`shared/flow/bus/outbox.py`). An event goes to each namespace that has a role over its app or namespace, and viewers
may see all of it: an event contains no recipient, and no answer of a target or provider.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from shared.domain.instants import EPOCH

JOBS_TOPIC = "carillon_jobs"
MESSAGES_TOPIC = "carillon_messages"
SCHEDULES_TOPIC = "carillon_schedules"


class OwnEvent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An unpublished event about a thing of an app or of a namespace. `path` is that of the thing in the API; `data` is
    sent as JSON. The store sets `stored_at`, by the database's clock."""

    id: str
    topic: str
    type: str
    path: str
    app_id: str = ""
    namespace: str = ""
    data: dict[str, Any]
    stored_at: datetime = EPOCH


def without_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts without those that are `""` or `None`."""
    return {name: fact for name, fact in facts.items() if fact not in ("", None)}
