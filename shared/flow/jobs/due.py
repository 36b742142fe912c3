"""A job's occurrences that are due: a stage begins, or a batch gets its next turn.

All of this can be done again at any time: the state of the documents lets upkeep find the work, so publishing its task
completes the occurrence.
"""

from shared.domain.clock.occurrences import Occurrence
from shared.domain.jobs.owners import JobStage, read_job_owner
from shared.domain.jobs.tasks import FinishJob, PlanJob, SendMail
from shared.flow.jobs.feed import Feed, mail_of
from shared.flow.jobs.jobs import JobFlow
from shared.store import Store


class DueWork:
    """The methods that the clock calls for jobs and for batches."""

    def __init__(self, store: Store, feed: Feed, jobs: JobFlow) -> None:
        self._store = store
        self._feed = feed
        self._jobs = jobs

    async def begin_stage(self, occurrence: Occurrence) -> None:
        """Begin the stage of the job that waited for this instant. Raises `Unavailable`."""
        job_id, stage = read_job_owner(occurrence.owner)
        attempt, faults = occurrence.runs, occurrence.attempts
        match stage:
            case JobStage.START:
                await self._jobs.begin(job_id)
            case JobStage.PLAN:
                # The plan is at work again: upkeep must not have the job planned a second time.
                await self._store.jobs.touch(job_id)
                await self._feed.publish(PlanJob(job_id, attempt=attempt, faults=faults))
            case JobStage.FINISH:
                await self._feed.publish(FinishJob(job_id, attempt=attempt, faults=faults))
            case JobStage.MAIL:
                kind, at = mail_of(occurrence)
                await self._feed.publish(SendMail(job_id, kind, at, attempt=attempt, faults=faults))

    async def bring_back_batch(self, occurrence: Occurrence) -> None:
        """Give the batch its next turn, if it stands as it stood when it was put off. Raises `Unavailable`."""
        await self._feed.bring_back(occurrence)
