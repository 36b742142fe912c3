"""Jobs in the API's process."""

from collections.abc import Sequence
from functools import cached_property

from services.api.http.pages.routes import PageSet
from services.api.http.routes import Resource
from services.api.jobs.groups import GroupsResource
from services.api.jobs.job_body import AccountJobs
from services.api.jobs.job_draft import JobDrafts, JobFiles
from services.api.jobs.job_lists import JobListResource
from services.api.jobs.job_view import JobAnswers
from services.api.jobs.jobs import BatchesResource, JobsResource
from services.api.jobs.moves import JobMovesResource
from services.api.jobs.pages.job import GroupPages, JobPages
from services.api.jobs.pages.job_list import JobListPages
from services.api.jobs.pages.making import JobMakingPages
from services.api.jobs.pages.templates import TemplatePages
from services.api.jobs.templates import TemplatesResource, TemplateTrialResource
from services.api.jobs.uploads import PartUploadsResource, UploadsResource, UploadUrlResource
from services.api.messages.message_jobs import MessageAccountJobs
from services.api.messages.recipient_counting import RecipientCounting
from services.parts import Part
from services.parts.jobs.common import JobsPart
from services.parts.messages.common import MessagesPart
from shared.domain.jobs.uploads import MAX_BYTES
from shared.flow.jobs.uploads import UploadFlow
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class JobsApi(Part):
    @cached_property
    def accounts(self) -> AccountJobs:
        messages = self.parts.of(MessagesPart)
        counting = RecipientCounting(self.store, lambda: messages.tables, self.capabilities.blobs)
        return MessageAccountJobs(
            self.store, messages.credentials, lambda: messages.tables, messages.figures, counting, messages.links
        )

    @cached_property
    def answers(self) -> JobAnswers:
        return JobAnswers(self.store, self.parts.of(JobsPart).watch, self.accounts)

    @cached_property
    def drafts(self) -> JobDrafts:
        jobs, given = self.parts.of(JobsPart), self.capabilities
        files = JobFiles(given.blobs, given.audience, jobs.kinds, max_bytes=self.settings.blobs.max_file_bytes)
        return JobDrafts(
            self.store,
            given.audience,
            files,
            given.clock,
            self.accounts,
            published_sign=self.settings.api.zone_offset == "added",
            max_record_bytes=self.settings.stream.max_record_bytes,
            mails=jobs.has_mails,
            lenient=self.settings.api.lenient_jobs,
        )

    @cached_property
    def uploads(self) -> UploadFlow:
        given, files = self.capabilities, self.settings.blobs
        most = min(files.max_file_bytes, MAX_BYTES)
        return UploadFlow(self.store, given.blobs, given.time, folder=files.upload_folder, max_bytes=most)

    def components(self, process: str) -> Sequence[Component]:
        if process != "api":
            return ()
        # Here and not in schedulers: apart from processes that read files, only the API reaches S3.
        every = self.settings.scheduler.retention_seconds
        return (Periodic("abandoned uploads", self.uploads.drop_abandoned, interval_seconds=every),)

    def resources(self) -> Sequence[Resource]:
        jobs, given, files = self.parts.of(JobsPart), self.capabilities, self.settings.blobs
        most, lenient = self.settings.stream.max_record_bytes, self.settings.api.lenient_jobs
        resources = [
            TemplatesResource(self.store, given.clock, max_record_bytes=most, lenient=lenient),
            JobsResource(self.store, self.drafts, jobs.flow, jobs.groups, jobs.watch, self.answers),
            JobListResource(self.store, jobs.watch),
            JobMovesResource(self.store, jobs.flow, jobs.removal, self.answers),
            BatchesResource(self.store, jobs.watch),
            TemplateTrialResource(self.store, max_record_bytes=most, lenient=lenient),
            GroupsResource(self.store, jobs.groups, jobs.flow, jobs.watch),
            PartUploadsResource(self.store, self.uploads),
            UploadUrlResource(
                given.blobs, given.clock, folder=files.upload_folder, public_url=self.settings.api.public_url
            ),
        ]
        if given.uploads is not None:
            resources.append(UploadsResource(given.uploads, max_file_bytes=files.max_file_bytes))
        return resources

    def pages(self) -> Sequence[PageSet]:
        return JobMakingPages(), JobListPages(), JobPages(), GroupPages(), TemplatePages()
