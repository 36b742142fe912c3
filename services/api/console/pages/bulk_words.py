"""Bulk actions in words: what each act is called, what it does, and to what."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import number
from services.api.http.pages.namespaces import tell_namespace

_COUNTED = 1_000_000


class ActWords(Struct, frozen=True):
    """What an act is called, what its things are, one and many, and what becomes of them."""

    label: str
    one: str
    many: str
    does: str
    is_final: bool = False


ACTS = {
    "dead-letter.retry": ActWords(
        "Try dead letters again", "dead letter", "dead letters",
        "tried again, as their schedules say it now. Those whose schedules are gone stay.",
    ),
    "dead-letter.discard": ActWords(
        "Discard dead letters", "dead letter", "dead letters",
        "discarded: these callbacks are never done. This cannot be undone.", True,
    ),
    "schedule.pause": ActWords(
        "Pause schedules", "schedule", "schedules", "paused: nothing of them fires until they are resumed."
    ),
    "schedule.resume": ActWords(
        "Resume schedules", "schedule", "schedules",
        "resumed. What came due meanwhile is late, and each schedule's own rule says what becomes of it.",
    ),
    "schedule.delete": ActWords(
        "Delete schedules", "schedule", "schedules",
        "deleted, with all that is pending of them. This cannot be undone.", True,
    ),
    "job.pause": ActWords("Pause jobs", "job", "jobs", "held: nothing more of them is sent until they are resumed."),
    "job.resume": ActWords("Resume jobs", "job", "jobs", "resumed: they go on where they stood."),
    "job.stop": ActWords("Stop jobs", "job", "jobs", "stopped for good. This cannot be undone.", True),
}  # fmt: skip

FIELDS = {
    "dead-letter": ("namespace", "key", "error"),
    "schedule": ("namespace", "prefix", "state", "label"),
    "job": ("app", "status", "template", "by"),
}

STATES = {"schedule": ("active", "paused", "finished"), "job": ("scheduled", "running", "paused", "circuitbreak")}

_WORDS = {
    "key": "of the schedule {}",
    "error": "that died of “{}”",
    "prefix": "with keys that begin with {}",
    "state": "that are {}",
    "label": "with the label {}",
    "app": "of the app {}",
    "status": "that are {}",
    "template": "of the template {}",
    "by": "made by {}",
}


def tell_figures(act: str, figures: Mapping[str, Any]) -> str:
    """What would be done, in figures."""
    words, matched = ACTS[act], figures["matched"]
    count = f"{number(matched)} or more" if matched >= _COUNTED else number(matched)
    told = f"{count} {words.one} is {words.does}" if matched == 1 else f"{count} {words.many} are {words.does}"
    devices = figures["devicesNotReached"]
    if devices is None:
        return told
    unplanned = figures["unplanned"]
    beside = f" {number(unplanned)} of the jobs are not planned yet, so nobody knows theirs." if unplanned else ""
    return f"{told} {number(devices)} devices would get nothing.{beside}"


def tell_filter(filter: Mapping[str, str], names: Mapping[str, str]) -> str:
    """What an action is about, in words."""
    parts = [words.format(filter[name]) for name, words in _WORDS.items() if filter.get(name)]
    namespace = filter.get("namespace")
    if namespace:
        parts.insert(0, f"of {tell_namespace(namespace, names)}")
    return ", ".join(parts)
