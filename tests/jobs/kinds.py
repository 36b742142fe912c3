"""The kinds of jobs that tests of their life use."""

from shared.jobs.kinds import JobKind, JobKinds
from shared.jobs.rules.jobs import Job, SendBatch
from shared.push.rules.records import APNS


class Plain(JobKind):
    """Jobs like those of push, with nothing to prepare and nothing to write."""

    batch_task = SendBatch

    @property
    def services(self) -> dict[str, str]:
        return {APNS: "iOS"}

    def recipients_per_part(self, job: Job) -> int:
        return 5_000

    async def prepare(self, job: Job) -> None: ...


KINDS = JobKinds([Plain()])
