"""Whether a process is heard of."""

from datetime import UTC, datetime, timedelta

import pytest

from shared.console.rules.processes import ProcessState, RunningProcess

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def a_process(**fields: object) -> RunningProcess:
    standard: dict[str, object] = {
        "id": "host/1/a",
        "roles": ("worker",),
        "host": "host",
        "version": "1",
        "started_at": NOON,
        "seen_at": NOON,
        "phase": "serving",
        "settings_digest": "abc",
    }
    return RunningProcess(**(standard | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "state"),
    [
        (-1, ProcessState.ALIVE),
        (15, ProcessState.ALIVE),
        (15.001, ProcessState.SILENT),
        (60, ProcessState.SILENT),
        (60.001, ProcessState.GONE),
    ],
)
def test_silence_makes_a_process_silent_and_then_gone(seconds: float, state: ProcessState) -> None:
    assert a_process().state_at(NOON + timedelta(seconds=seconds)) is state
