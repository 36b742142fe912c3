"""The bus in workers: they deliver, replay, and send mails about subscriptions."""

from collections.abc import Sequence
from typing import Any

from services.parts import Part
from services.parts.bus.common import BusPart
from services.parts.jobs.worker import JobsWorker
from services.worker.bus.deliver import DeliveringTools, DeliverQueues, DeliverSlowQueues, ReplayRunner
from services.worker.bus.held_queue import BYTES_IN_HAND
from services.worker.consumer import Stage
from shared.flow.bus.outbox import MAIL_SECONDS, NoticeMails
from shared.outgoing import Outgoing
from shared.runtime.fair_budget import FairBudget
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class BusWorker(Part):
    def stages(self) -> Sequence[Stage[Any]]:
        given, chosen, for_slow = self.capabilities, self.settings.bus, BYTES_IN_HAND // 4
        well = max(chosen.calls_in_flight - chosen.slow_calls_in_flight, 1)
        return (
            DeliverQueues(self._tools(given.bus_outgoing, BYTES_IN_HAND - for_slow), in_flight=well),
            DeliverSlowQueues(self._tools(given.slow_bus_outgoing, for_slow), in_flight=chosen.slow_calls_in_flight),
            ReplayRunner(self.parts.of(BusPart).replaying),
        )

    def components(self, process: str) -> Sequence[Component]:
        """Mails about subscriptions, if there is a mail server."""
        given, jobs = self.capabilities, self.parts.of(JobsWorker)
        if process != "worker" or not given.mail.delivers:
            return ()
        mails = NoticeMails(self.store, given.mail, given.time, jobs.mailing, lease=jobs.mail_lease)
        return (Periodic("mails about subscriptions", mails.run_once, interval_seconds=MAIL_SECONDS),)

    def _tools(self, outgoing: Outgoing, bytes_in_hand: int) -> DeliveringTools:
        given, bus = self.capabilities, self.parts.of(BusPart)
        return DeliveringTools(
            store=self.store,
            time=given.time,
            waker=bus.waker,
            outgoing=outgoing,
            ring=given.key_ring,
            subscribing=bus.subscribing,
            care=bus.care,
            call_seconds=self.settings.bus.call_seconds,
            ahead=self.settings.scheduler.lookahead_seconds,
            budget=FairBudget(bytes_in_hand),
        )
