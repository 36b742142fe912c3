"""Jobs of every kind in workers: they plan and finish them, and send mails about them."""

import socket
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.worker.consumer import Stage
from services.worker.jobs.dividing import Cuts
from services.worker.jobs.finish import Finisher, Grace, Mailer
from services.worker.jobs.plan import PlanInputs, Planner
from shared.domain.jobs.mails import Mailing
from shared.flow.jobs.finish import Finish


class JobsWorker(Part):
    @cached_property
    def grace(self) -> Grace:
        return Grace(self.store, self.capabilities.clock, seconds=self.settings.worker.grace_seconds)

    @cached_property
    def mailing(self) -> Mailing:
        chosen = self.settings.mail
        return Mailing(
            domain=chosen.message_id_domain or chosen.sender_address.rpartition("@")[2],
            addressees=chosen.addressees,
            blacklist=chosen.blacklist,
            host=socket.gethostname(),
            platforms=self.parts.of(JobsPart).kinds.services,
        )

    @property
    def mail_lease(self) -> timedelta:
        """Longer than any attempt: otherwise a mail on its way would be sent again."""
        return timedelta(seconds=2 * self.settings.mail.timeout_seconds)

    def stages(self) -> Sequence[Stage[Any]]:
        given, jobs, worker = self.capabilities, self.parts.of(JobsPart), self.settings.worker
        inputs = PlanInputs(
            self.store,
            given.audience,
            given.blobs,
            jobs.kinds,
            given.clock,
            batch_size=worker.batch_size,
            max_file_bytes=self.settings.blobs.max_file_bytes,
        )
        planner = Planner(
            self.store,
            inputs,
            Cuts(self.store, given.audience, given.blobs, worker),
            jobs.feed,
            jobs.flow,
            jobs.breaker,
            self.grace,
            given.clock,
            in_flight=worker.plans_in_flight,
        )
        finish = Finish(self.store, jobs.kinds, jobs.breaker, given.clock, role=given.service, mails=jobs.has_mails)
        finisher = Finisher(finish, jobs.feed, in_flight=worker.plans_in_flight)
        mailer = Mailer(self.store, given.mail, jobs.feed, given.time, self.mailing, lease=self.mail_lease)
        return (planner, finisher, mailer)
