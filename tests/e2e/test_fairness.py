"""Between callers: while one does its worst, another one's callbacks come in time."""

from datetime import datetime

import pytest

from shared.clock.rules.callbacks import HttpCallback
from shared.clock.rules.schedules import Definition
from tests.bench.fairness import SILENT, late_beside
from tests.e2e.callees import PAYLOAD, callee
from tests.e2e.house import House

pytestmark = [pytest.mark.e2e, pytest.mark.native]

TIMEOUT = 10.0


@pytest.mark.alone
async def test_calls_to_a_silent_target_hold_up_no_others(house: House) -> None:
    """400 silent calls keep the 200 places of a worker for 20 seconds. Who waited for one of them would wait for its
    time-out of ten seconds at least; how late the others come beside that is a matter of the machine's load, and
    measured by `make bench`."""
    async with callee(thinks_for=SILENT) as silent:

        def once(first: datetime) -> Definition:
            return Definition(callback=HttpCallback(url=silent.url, payload=PAYLOAD), instants=(first,))

        late = await late_beside(house, 400, once)
    assert max(late) < TIMEOUT, f"{late}"
