"""The transition tables: whole, and the only source of moves."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import pytest

from shared.clock.rules import schedules
from shared.clock.rules.schedules import ScheduleState
from shared.core.documents import final, source_of, sources
from shared.jobs.rules import batches, jobs
from shared.jobs.rules.batches import BatchStatus
from shared.jobs.rules.jobs import JobStatus

Table = Mapping[Any, frozenset[Any]]

every_table = pytest.mark.parametrize("table", [jobs.TRANSITIONS, batches.TRANSITIONS, schedules.TRANSITIONS])


@every_table
def test_every_status_has_its_row_and_every_target_exists(table: Table) -> None:
    kind: type[StrEnum] = type(next(iter(table)))
    assert set(table) == set(kind)
    assert all(targets <= set(table) for targets in table.values())


@every_table
def test_the_sources_of_a_status_are_those_that_it_follows(table: Table) -> None:
    for to in table:
        assert all((source in sources(table, to)) == (to in targets) for source, targets in table.items())


@every_table
def test_a_move_has_its_source_or_is_refused(table: Table) -> None:
    for source, targets in table.items():
        for to in table:
            if to in targets:
                assert source_of(table, source, to) is source
            else:
                with pytest.raises(ValueError, match=f"{to} does not follow {source}"):
                    source_of(table, source, to)


def test_what_is_final() -> None:
    assert final(jobs.TRANSITIONS) == {JobStatus.STOPPED, JobStatus.COMPLETED}
    assert final(batches.TRANSITIONS) == batches.SETTLED == {BatchStatus.SENT, BatchStatus.FAILED, BatchStatus.DROPPED}
    assert final(schedules.TRANSITIONS) == frozenset(ScheduleState) - schedules.PENDING == {ScheduleState.FINISHED}
