"""The clock in workers: they make its HTTP calls."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from services.parts import Part
from services.parts.accounts.common import AccountsPart
from services.parts.clock.common import ClockPart
from services.worker.clock.call import FairCalls, HttpCaller, Places
from services.worker.consumer import Stage

# The calls that may wait in a worker for a place, so that none waits in the queue behind those of another caller.
_WAITING_PER_PLACE = 4


class ClockWorker(Part):
    def stages(self) -> Sequence[Stage[Any]]:
        chosen = self.settings.callbacks
        waiting = _WAITING_PER_PLACE * chosen.calls_in_flight
        places = Places(at_once=chosen.calls_in_flight, per_host=chosen.calls_per_host, waiting=waiting)
        caller = HttpCaller(
            self.store,
            self.capabilities.time,
            self.capabilities.outgoing,
            self.parts.of(ClockPart).settlement,
            call_timeout=timedelta(seconds=chosen.call_timeout_seconds + self.settings.scheduler.lookahead_seconds),
            signing=self.parts.of(AccountsPart).signing,
        )
        return (FairCalls(caller, places),)
