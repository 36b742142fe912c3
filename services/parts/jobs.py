"""Jobs: what every kind of job has. Its life, its plan, its batches and its end; localized groups; mails."""

import socket
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any

from services.api.http.routes import Resource
from services.api.jobs.groups import GroupsResource
from services.api.jobs.job_draft import JobDrafts
from services.api.jobs.jobs import JobsResource
from services.api.jobs.moves import JobMovesResource
from services.api.jobs.templates import TemplatesResource
from services.api.jobs.uploads import UploadsResource, UploadUrlResource
from services.parts import Check, Part
from services.scheduler.fire import OnDue
from services.worker.jobs.cuts import Cuts
from services.worker.jobs.finish import Finisher
from services.worker.jobs.grace import Grace
from services.worker.jobs.mail import Mailer
from services.worker.jobs.plan import Planner
from services.worker.jobs.plan_inputs import PlanInputs
from services.worker.stage import Stage
from shared.domain.jobs.mails import Mailing
from shared.domain.jobs.owners import BATCH, JOB
from shared.flow.jobs.breaker import Breaker
from shared.flow.jobs.due import DueWork
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.finish import Finish
from shared.flow.jobs.groups import GroupFlow
from shared.flow.jobs.jobs import JobFlow
from shared.flow.jobs.kinds import JobKinds
from shared.flow.jobs.retention import JobRetention
from shared.flow.jobs.upkeep import Upkeep, UpkeepPatience
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic

# Work whose queue is busy counts as lost after so many times the usual patience.
_AT_LATEST = 10


class JobsPart(Part):
    """What every kind of job has."""

    @cached_property
    def kinds(self) -> JobKinds:
        return JobKinds(self.parts.job_kinds)

    @cached_property
    def feed(self) -> Feed:
        return Feed(self.store, self.capabilities.broker, self.kinds)

    @cached_property
    def flow(self) -> JobFlow:
        return JobFlow(self.store, self.feed, self.capabilities.clock, mails=self.has_mails)

    @cached_property
    def groups(self) -> GroupFlow:
        return GroupFlow(self.store, self.flow)

    @cached_property
    def breaker(self) -> Breaker:
        share = self.settings.worker.max_batch_failure
        return Breaker(self.store, self.capabilities.clock, max_failed_share=share, mails=self.has_mails)

    @cached_property
    def grace(self) -> Grace:
        return Grace(self.store, self.capabilities.clock, seconds=self.settings.worker.grace_seconds)

    @cached_property
    def drafts(self) -> JobDrafts:
        return JobDrafts(
            self.store,
            self.capabilities.audience,
            self.capabilities.blobs,
            self.capabilities.clock,
            published_sign=self.settings.api.zone_offset == "added",
            max_file_bytes=self.settings.blobs.max_file_bytes,
            max_record_bytes=self.settings.stream.max_record_bytes,
            mails=self.has_mails,
        )

    @property
    def has_mails(self) -> bool:
        """Whether anybody is to hear of what happens to jobs."""
        return self.capabilities.mail.delivers

    def resources(self) -> Sequence[Resource]:
        given, files = self.capabilities, self.settings.blobs
        resources = [
            TemplatesResource(self.store, given.clock, max_record_bytes=self.settings.stream.max_record_bytes),
            JobsResource(self.store, self.drafts, self.flow, self.groups),
            JobMovesResource(self.store, self.flow),
            GroupsResource(self.store, self.groups, self.flow),
            UploadUrlResource(
                given.blobs, given.clock, folder=files.upload_folder, public_url=self.settings.api.public_url
            ),
        ]
        if given.uploads is not None:
            resources.append(UploadsResource(given.uploads, max_file_bytes=files.max_file_bytes))
        return resources

    def stages(self) -> Sequence[Stage[Any]]:
        finish = Finish(self.store, self.kinds, self.breaker, self.capabilities.clock, mails=self.has_mails)
        finisher = Finisher(finish, self.feed, in_flight=self.settings.worker.plans_in_flight)
        return (self._planner(), finisher, self._mailer())

    def on_due(self) -> Mapping[str, OnDue]:
        due = DueWork(self.store, self.feed, self.flow)
        return {JOB: due.begin_stage, BATCH: due.bring_back_batch}

    def components(self, process: str) -> Sequence[Component]:
        if process != "scheduler":
            return ()
        chosen = self.settings.scheduler
        stale = timedelta(seconds=chosen.stale_seconds)
        patience = UpkeepPatience(
            owned=timedelta(seconds=self.settings.stream.transaction_timeout_seconds + chosen.margin_seconds),
            queued=stale,
            at_latest=_AT_LATEST * stale,
        )
        retention = JobRetention(self.store, self.capabilities.time, chosen)
        return (
            Periodic("upkeep", self._upkeep(patience).sweep, interval_seconds=chosen.upkeep_seconds),
            Periodic("retention of jobs", retention.run_once, interval_seconds=chosen.retention_seconds),
        )

    def checks(self, process: str) -> Mapping[str, Check]:
        checks: dict[str, Check] = {}
        if process in {"api", "scheduler", "worker"}:
            checks["broker"] = self.capabilities.broker.ping
        if process in {"api", "worker"}:
            checks["push database"] = self.capabilities.audience.ping
        return checks

    async def take_up(self) -> None:
        none = timedelta(0)
        await self._upkeep(UpkeepPatience(none, none, none)).run_once()

    def _upkeep(self, patience: UpkeepPatience) -> Upkeep:
        return Upkeep(
            self.store, self.capabilities.broker, self.feed, self.flow, self.groups, self.breaker, self.kinds, patience
        )

    def _planner(self) -> Planner:
        given, worker = self.capabilities, self.settings.worker
        inputs = PlanInputs(
            self.store,
            given.audience,
            given.blobs,
            self.kinds,
            given.clock,
            batch_size=worker.batch_size,
            max_record_bytes=self.settings.stream.max_record_bytes,
            max_file_bytes=self.settings.blobs.max_file_bytes,
        )
        return Planner(
            self.store,
            inputs,
            Cuts(self.store, given.audience, given.blobs, worker),
            self.feed,
            self.flow,
            self.breaker,
            self.grace,
            given.clock,
            in_flight=worker.plans_in_flight,
        )

    def _mailer(self) -> Mailer:
        chosen = self.settings.mail
        mailing = Mailing(
            domain=chosen.message_id_domain or chosen.sender_address.rpartition("@")[2],
            addressees=chosen.addressees,
            blacklist=chosen.blacklist,
            host=socket.gethostname(),
            platforms=self.kinds.services,
        )
        # No attempt may outlive its lease: a mail that is on its way would be sent once more.
        lease = timedelta(seconds=2 * chosen.timeout_seconds)
        given = self.capabilities
        return Mailer(self.store, given.mail, self.feed, given.time, mailing, lease=lease)
