"""What an import decides, without servers: rows of any content, and edits on both sides in any order."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from carillon_imports.marathon.jobs import PastStanding, past_standing, read_job
from carillon_imports.marathon.source import JobRow
from carillon_imports.report import (
    AS_BEFORE,
    BROUGHT,
    EXAMPLES,
    MAX_REASONS,
    OTHER_REASONS,
    UPDATED,
    Fate,
    ImportTally,
    ImportVerdict,
    Thing,
    digest,
    verdict,
)
from shared.core.errors import Refused
from shared.jobs.rules.jobs import Job, JobStatus

pytestmark = pytest.mark.imports

NOW = 1_000


def a_row(**fields: Any) -> JobRow:
    texts = ("status", "past_time_strategy", "csv_path", "control_group_csv_path", "created_by")
    numbers = ("total_batches", "completed_batches", "total_tokens", "completed_tokens", "starts_at", "expires_at")
    times = ("completed_at", "created_at", "updated_at")
    documents = ("context", "filters", "metadata", "feedbacks")
    common: dict[str, Any] = {"id": "j", "app_id": "a", "job_group_id": "g", "template_name": "like", "service": "apns"}
    common |= dict.fromkeys(texts, "") | dict.fromkeys((*numbers, *times), 0) | dict.fromkeys(documents, "{}")
    return JobRow(**(common | {"localized": False, "control_group": 0.0} | fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, PastStanding.RUNS),
        ({"starts_at": NOW}, PastStanding.RUNS),
        ({"starts_at": NOW + 1}, PastStanding.WAITS),
        ({"starts_at": NOW + 1, "status": "paused"}, PastStanding.HELD),
        ({"starts_at": NOW + 1, "localized": True}, PastStanding.LOCALIZED),
        ({"localized": True, "completed_at": 5}, PastStanding.COMPLETED),
        ({"status": "circuitbreak"}, PastStanding.HELD),
        ({"status": "paused", "completed_at": 5}, PastStanding.COMPLETED),
        ({"status": "stopped", "completed_at": 5}, PastStanding.STOPPED),
        ({"status": "stopped", "starts_at": NOW + 1}, PastStanding.STOPPED),
        ({"expires_at": NOW}, PastStanding.EXPIRED),
        ({"expires_at": NOW + 1}, PastStanding.RUNS),
        ({"expires_at": NOW, "completed_at": 5}, PastStanding.COMPLETED),
        ({"expires_at": NOW, "status": "paused"}, PastStanding.EXPIRED),
    ],
)
def test_where_a_job_stands_there(fields: dict[str, Any], expected: PastStanding) -> None:
    assert past_standing(a_row(**fields), NOW) is expected


small = st.integers(0, NOW * 2)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)
documents = st.none() | st.text(max_size=9) | st.builds(json.dumps, anything) | st.just("[" * 2_000) | st.just("{}")
rows = st.builds(
    a_row,
    status=st.sampled_from(["", "paused", "stopped", "circuitbreak", "other"]),
    service=st.sampled_from(["apns", "gcm", "", "APNS"]),
    template_name=st.text(max_size=9),
    localized=st.booleans(),
    control_group=st.floats(),
    completed_at=small,
    starts_at=small,
    expires_at=small,
    context=documents,
    filters=documents,
    metadata=documents,
    feedbacks=documents | st.builds(json.dumps, st.dictionaries(st.text(max_size=80), st.integers(), max_size=120)),
)


def read(row: JobRow, *, scheduled: bool) -> Job | str:
    """The job, or why not."""
    try:
        return read_job(row, "game", now_ns=NOW, scheduled=scheduled)
    except Refused as error:
        return error.reason


@settings(deadline=None)
@given(row=rows, scheduled=st.booleans())
def test_a_row_of_any_content_is_a_job_or_is_refused_with_a_reason(row: JobRow, scheduled: bool) -> None:
    job = read(row, scheduled=scheduled)
    if isinstance(job, str):
        assert job
        return
    assert job.open is (job.status is JobStatus.SCHEDULED)
    assert scheduled or not job.open
    assert not job.open or job.starts_at > NOW
    assert len(job.feedbacks) <= 101
    assert sum(job.feedbacks.values()) == sum(json.loads(row.feedbacks or "{}").values()) or job.open


class Note(Struct):
    id: str = "n"
    text: str = ""
    later: int = 0


def test_a_field_that_a_later_release_adds_changes_no_digest() -> None:
    class Older(Struct):
        id: str = "n"
        text: str = ""

    assert digest(Older(text="x")) == digest(Note(text="x"))
    assert len({digest(Note(text=text)) for text in ("", "x", "y")}) == 3


@settings(deadline=None)
@given(st.lists(st.sampled_from(["edit there", "edit here", "delete here", "import", "killed import"]), max_size=12))
def test_no_import_undoes_what_was_done_here(steps: list[str]) -> None:
    """An import that is killed has written and not noted: until one notes, it is sure only that nothing that differs
    is overwritten."""
    there, here, noted = 0, None, None
    touched = in_doubt = False
    for number, step in enumerate(steps, 1):
        if step == "edit there":
            there = number
        elif step == "edit here" and here is not None:
            here, touched = -number, True
        elif step == "delete here" and here is not None:
            here, touched = None, True
        elif step.endswith("import"):
            judged = verdict(str(there), None if here is None else str(here), noted)
            if judged in (BROUGHT, UPDATED):
                assert not touched or (in_doubt and here is None)
                here, touched = there, False
            elif not touched and not in_doubt:
                assert here == there
            if step == "killed import":
                in_doubt = True
            elif judged in (BROUGHT, UPDATED, AS_BEFORE):
                noted, in_doubt = str(there), False


def test_a_report_stays_small_and_moves_no_cursor() -> None:
    tally = ImportTally()
    for number in range(500):
        tally.add(Thing("jobs", str(number), "\x1b[2J"), ImportVerdict(Fate.SKIPPED, f"reason {number % 100}"))
    text = tally.text(("jobs",))
    assert tally.count(Fate.SKIPPED) == 500
    assert OTHER_REASONS in text
    assert len(text.splitlines()) < (MAX_REASONS + 1) * (EXAMPLES + 2) + 5
    assert "\x1b" not in text
