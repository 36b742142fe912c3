"""The part of jobs that several processes share."""

from collections.abc import Mapping, Sequence
from functools import cached_property

from services.parts import Check, Part
from shared.flow.accounts import Belongings
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.finish import Breaker
from shared.flow.jobs.kinds import JobKinds
from shared.flow.jobs.moves import GroupFlow, JobFlow
from shared.flow.jobs.retention import JobBelongings, JobRemoval
from shared.flow.jobs.watch import JobWatch


class JobsPart(Part):
    @cached_property
    def kinds(self) -> JobKinds:
        return JobKinds(self.parts.job_kinds)

    @cached_property
    def feed(self) -> Feed:
        return Feed(self.store, self.capabilities.broker, self.kinds)

    @cached_property
    def flow(self) -> JobFlow:
        given = self.capabilities
        return JobFlow(self.store, self.feed, given.clock, role=given.service, mails=self.has_mails)

    @cached_property
    def groups(self) -> GroupFlow:
        return GroupFlow(self.store, self.flow)

    @cached_property
    def breaker(self) -> Breaker:
        share = self.settings.worker.max_batch_failure
        given = self.capabilities
        return Breaker(self.store, given.clock, role=given.service, max_failed_share=share, mails=self.has_mails)

    @cached_property
    def watch(self) -> JobWatch:
        return JobWatch(self.store, self.capabilities.time)

    @cached_property
    def removal(self) -> JobRemoval:
        from services.parts.console.common import ConsolePart  # it depends on this part

        tell = self.parts.of(ConsolePart).system_records.tell_of_jobs
        kept_days = self.settings.scheduler.job_retention_days
        return JobRemoval(self.store, self.capabilities.time, self.kinds, tell, kept_days=kept_days)

    def belongings(self) -> Sequence[Belongings]:
        return (JobBelongings(self.store, self.removal),)

    @property
    def has_mails(self) -> bool:
        return self.capabilities.mail.delivers

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"broker": self.capabilities.broker.ping} if process == "worker" else {}

    def side_checks(self, process: str) -> Mapping[str, Check]:
        checks: dict[str, Check] = {}
        if process in {"api", "scheduler"}:
            checks["broker"] = self.capabilities.broker.ping
        if process in {"api", "worker"}:
            checks["push database"] = self.capabilities.audience.ping
        return checks
