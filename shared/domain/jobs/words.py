"""Words for people: events of jobs, and rates."""

from shared.domain.jobs.events import (
    FINISH,
    PAUSE,
    PLAN,
    READ_FILE,
    RESUME,
    SEND,
    SEND_DIRECT,
    SEND_ENDED,
    STOP,
    EventState,
)  # fmt: skip

SILENT = frozenset({"starting", "finished", "Finished all batches"})
"""Messages that only repeat the label of their event."""

_LABELS = {
    READ_FILE: "File read",
    PLAN: "Audience split into batches",
    SEND: "Sending",
    SEND_ENDED: "All batches done",
    SEND_DIRECT: "Sending",
    FINISH: "Closed",
    PAUSE: "Paused",
    RESUME: "Resumed",
    STOP: "Stopped",
    "job_retried": "Retried",
}
_BEGUN = {READ_FILE: "Reading the file", PLAN: "Splitting the audience into batches"}
_FAILED = {
    READ_FILE: "The file could not be read",
    PLAN: "The audience could not be split",
    SEND: "It failed",
    SEND_DIRECT: "It could not be sent",
    FINISH: "The control group's file could not be written",
}


def label_of(stage: str, state: str) -> str:
    words = {EventState.FAIL: _FAILED, EventState.RUNNING: _BEGUN}.get(EventState(state), _LABELS)
    return words.get(stage) or _LABELS.get(stage, stage)


def per_unit(per_second: float) -> tuple[float, str]:
    """A rate for people: its number in the shortest of a second, a minute and an hour that has at least one."""
    for seconds, unit in ((1, "second"), (60, "minute")):
        if per_second * seconds >= 1 or not per_second:
            return per_second * seconds, unit
    return per_second * 3_600, "hour"
