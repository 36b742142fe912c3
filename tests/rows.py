"""Which worker runs which test: several of one module in a row, so that one worker makes what they share, and no other
has to."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_LONGEST = 25
_TOGETHER = ("tests/deploy/", "tests/rules/", "tests/security/")
"""One worker runs all tests of such a folder, because what they share takes long to make."""


class Rows(LoadScopeScheduling):
    """Hands out rows in their order."""

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._rows: dict[str, str] = {}

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that a dead worker was at has failed; others run the rest of its rows."""
        rest = self.assigned_work.pop(node)
        waiting: list[tuple[str, str]] = [
            (row, test) for row, tests in rest.items() for test, is_done in tests.items() if not is_done
        ]
        if not waiting:
            return None
        row, crashed = waiting[0]
        rest[row][crashed] = True
        unfinished = {row: rest[row] for row, _ in waiting[1:]}
        self.workqueue: OrderedDict[str, dict[str, bool]] = OrderedDict(unfinished | self.workqueue)
        for other in self.nodes:
            self._reschedule(other)
        return crashed

    def _split_scope(self, nodeid: str) -> str:
        if not self._rows:
            self._rows = rows_of(self.collection or [])
        return self._rows[nodeid]


def rows_of(tests: Sequence[str]) -> dict[str, str]:
    """The row of each test, named by its module or folder and by the place of its first test."""
    rows: dict[str, str] = {}
    for place, together in groupby(tests, key=_place_of):
        first, longest = len(rows), len(tests) if place in _TOGETHER else _LONGEST
        for number, test in enumerate(together):
            rows[test] = f"{place} {first + number - number % longest}"
    return rows


def _place_of(test: str) -> str:
    module = test.partition("::")[0]
    return next((folder for folder in _TOGETHER if module.startswith(folder)), module)
