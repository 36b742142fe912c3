"""Messages in workers: they send the batches of jobs, and single messages."""

from collections.abc import Sequence
from typing import Any

from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.parts.jobs.worker import JobsWorker
from services.parts.messages.common import MessagesPart
from services.worker.consumer import Stage
from services.worker.messages.opening import Dispatches, OpenAccounts, SendRules
from services.worker.messages.pace import KeptClock
from services.worker.messages.rows import Mailings, RowsReader
from services.worker.messages.send import MessageSender
from services.worker.messages.singles import SingleSender
from shared.domain.messages.pacing import PaceGuard
from shared.flow.messages.halting import INTERVAL_SECONDS, RejectionMails
from shared.flow.time import AccountClock
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class MessagesWorker(Part):
    def stages(self) -> Sequence[Stage[Any]]:
        given, jobs, messages = self.capabilities, self.parts.of(JobsPart), self.parts.of(MessagesPart)
        chosen = self.settings.providers
        guard = PaceGuard(
            late_us=1_000 * chosen.late_ms, clock_us=1_000 * chosen.clock_ms, network_us=1_000 * chosen.network_ms
        )
        rules = SendRules(guard=guard, call_seconds=chosen.call_seconds)
        accounts = OpenAccounts(messages.credentials.open)
        kept_clock = KeptClock(AccountClock(self.store), allowed_us=guard.clock_us)
        dispatches = Dispatches(self.store, accounts, kept_clock, rules)
        return (
            SingleSender(self.store, dispatches, messages.credentials, messages.feed, messages.singles),
            MessageSender(
                self.store,
                Mailings(self.store, messages.tables),
                RowsReader(messages.tables, given.blobs),
                dispatches,
                messages.credentials,
                messages.links,
                messages.feed,
                jobs.feed,
                jobs.flow,
                messages.bounces,
                self.parts.of(JobsWorker).grace,
                given.clock,
                rules,
                in_flight=chosen.batches_in_flight,
            ),
        )

    def components(self, process: str) -> Sequence[Component]:
        """Mails about credentials, if there is a mail server."""
        given, jobs = self.capabilities, self.parts.of(JobsWorker)
        if process != "worker" or not given.mail.delivers:
            return ()
        mails = RejectionMails(self.store, given.mail, jobs.mailing, lease=jobs.mail_lease)
        return (Periodic("mails about credentials", mails.run_once, interval_seconds=INTERVAL_SECONDS),)
