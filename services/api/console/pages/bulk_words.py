"""Bulk actions in words: what each act is called, what it does, and to what."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import number
from services.api.http.pages.namespaces import tell_namespace
from services.api.jobs.pages.job_words import STATES as JOB_STATES

_COUNTED = 1_000_000


class ActWords(Struct, frozen=True):
    """The names of an act, of one and of many of its things, and of their state after it."""

    label: str
    one: str
    many: str
    does: str
    is_final: bool = False


ACTS = {
    "dead-letter.retry": ActWords(
        "Retry dead letters", "dead letter", "dead letters",
        "retries {} with the current definition of their schedule. Letters of deleted schedules stay.",
    ),
    "dead-letter.discard": ActWords(
        "Discard dead letters", "dead letter", "dead letters",
        "discards {}: these callbacks never happen. This cannot be undone.", True,
    ),
    "schedule.pause": ActWords(
        "Pause schedules", "schedule", "schedules", "pauses {}: they do not fire until they are resumed."
    ),
    "schedule.resume": ActWords(
        "Resume schedules", "schedule", "schedules",
        "resumes {}. Each schedule handles what came due in the meantime by its own rule for late occurrences.",
    ),
    "schedule.delete": ActWords(
        "Delete schedules", "schedule", "schedules",
        "deletes {}, with everything pending. This cannot be undone.", True,
    ),
    "job.pause": ActWords("Pause jobs", "job", "jobs", "pauses {}: they send nothing until they are resumed."),
    "job.resume": ActWords("Resume jobs", "job", "jobs", "resumes {} where they stopped."),
    "job.stop": ActWords("Stop jobs", "job", "jobs", "stops {} for good. This cannot be undone.", True),
}  # fmt: skip

FIELDS = {
    "dead-letter": ("namespace", "key", "error"),
    "schedule": ("namespace", "prefix", "state", "label"),
    "job": ("app", "status", "template", "by"),
}

STATES = {"schedule": ("active", "paused", "finished"), "job": ("scheduled", "running", "paused", "circuitbreak")}
JOB_WORDS = {str(state): word for state, word in JOB_STATES.items()}

_WORDS = {
    "key": "of the schedule {}",
    "error": "with the error “{}”",
    "prefix": "with keys that begin with “{}”",
    "state": "that are {}",
    "label": "with the label {}",
    "app": "of the app {}",
    "status": "that are {}",
    "template": "of the template {}",
    "by": "created by {}",
}


def tell_figures(act: str, figures: Mapping[str, Any]) -> str:
    """The figures of a preview as a sentence."""
    words, matched = ACTS[act], figures["matched"]
    count = f"{number(matched)} or more" if matched >= _COUNTED else number(matched)
    told = f"This {words.does.format(f'{count} {words.one if matched == 1 else words.many}')}"
    devices = figures["devicesNotReached"]
    if devices is None:
        return told
    unplanned = figures["unplanned"]
    beside = f" {number(unplanned)} jobs are not planned yet: their devices are not counted." if unplanned else ""
    return f"{told} {number(devices)} devices would get nothing.{beside}"


def tell_filter(filter: Mapping[str, str], names: Mapping[str, str]) -> str:
    """The filter of an action in words."""
    shown = {**filter, "status": JOB_WORDS.get(filter.get("status", ""), "")}
    parts = [words.format(shown[name]) for name, words in _WORDS.items() if shown.get(name)]
    namespace = filter.get("namespace")
    if namespace:
        parts.insert(0, f"of {tell_namespace(namespace, names)}")
    return ", ".join(parts)
