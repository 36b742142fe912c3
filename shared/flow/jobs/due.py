"""Due occurrences of jobs: a stage begins, or a batch gets its next turn.

All of this may be repeated at any time: upkeep finds the work by the state of the documents, so an occurrence is
complete once its task is published.
"""

from shared.domain.clock.occurrences import Occurrence
from shared.domain.jobs.owners import JobStage, read_job_owner
from shared.domain.jobs.tasks import FinishJob, PlanJob, SendMail
from shared.flow.jobs.feed import Feed, mail_of
from shared.flow.jobs.jobs import JobFlow
from shared.store import Store


class DueWork:
    """The clock's handlers for jobs and batches."""

    def __init__(self, store: Store, feed: Feed, jobs: JobFlow) -> None:
        self._store = store
        self._feed = feed
        self._jobs = jobs

    async def begin_stage(self, occurrence: Occurrence) -> None:
        """Begin the stage of the job that waited for this instant."""
        job_id, stage = read_job_owner(occurrence.owner)
        attempt, faults = occurrence.runs, occurrence.attempts
        match stage:
            case JobStage.START:
                await self._jobs.begin(job_id)
            case JobStage.PLAN:
                # The plan is being worked at again: upkeep must not start a second planning.
                await self._store.jobs.touch(job_id)
                await self._feed.publish(PlanJob(job_id, attempt=attempt, faults=faults))
            case JobStage.FINISH:
                await self._feed.publish(FinishJob(job_id, attempt=attempt, faults=faults))
            case JobStage.MAIL:
                kind, at = mail_of(occurrence)
                await self._feed.publish(SendMail(job_id, kind, at, attempt=attempt, faults=faults))

    async def bring_back_batch(self, occurrence: Occurrence) -> None:
        await self._feed.bring_back(occurrence)
