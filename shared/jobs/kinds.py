"""Kinds of jobs, such as push: the steps that differ by kind. The `service` of a job names its kind."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from datetime import timedelta

from msgspec import Struct

from shared.audience.rules.columns import NamedColumns
from shared.core.errors import Unavailable
from shared.jobs.rules.jobs import Job, SendBatch, Standing


class UnknownKind(Unavailable):
    """Only a process of another version knows this kind of job."""


class Written(Struct, frozen=True):
    """The path of a file, or the failure to write it; both are empty if there is nothing to write."""

    path: str = ""
    failure: str = ""


class JobKind(ABC):
    """The steps that a kind of job does in its own way."""

    batch_task: type[SendBatch]
    """The task that sends a batch, on a queue of the kind's own."""

    silence: timedelta | None = None
    """The owner of a batch counts as gone after this time without a sign. A kind that has it feeds its batches in an
    order of its own, by the methods below; batches of other kinds are in chains."""

    keeps_batches = False
    """Whether the kind removes the batches of closed jobs by itself."""

    @property
    @abstractmethod
    def services(self) -> Mapping[str, str]:
        """The values of `service` in its jobs, each with the user's word for its devices."""

    @abstractmethod
    def recipients_per_part(self, job: Job) -> int:
        """The most recipients of one part of a batch."""

    def batch_size(self, job: Job, most: int) -> int:
        """The recipients of a batch, or users of a file, who may have two devices each; at most `most`, the
        deployment's limit."""
        fitting = self.recipients_per_part(job)
        return min(most, max(1, fitting // 2) if job.csv_path else fitting)

    def named_columns(self, job: Job) -> NamedColumns | None:
        """The columns of its file or table that the job reads by name; `None` if it reads those of a push. The job has
        the templates of its plan."""
        return None

    async def feed(self, standing: Standing) -> None:
        """Queue all batches that may be queued now, of this job or of others that wait for the same. After
        `Unavailable` the others stay planned."""

    async def end_owner(self, owner: str) -> None:
        """Release what the owner of a batch still holds after `silence`."""

    async def drain(self, job: Job) -> None:
        """Bring the rest of a stopped job to an end if it cannot be dropped unseen."""

    async def reopen(self, job: Job) -> None:
        """Continue to take the job up again if the process that began it died."""

    @abstractmethod
    async def prepare(self, job: Job) -> None:
        """Check the templates in the job's plan and prepare the sending, before the audience is fixed. Raises `Invalid`
        if the job can never be sent."""

    async def forget_some(self, job: Job) -> bool:
        """Remove some of the kind's data of a closed job that is about to be removed; `False` once nothing is left."""
        return False

    async def write_at_end(self, job: Job) -> Written:
        """Write the file of a job whose batches are settled, before the job closes. Raises `Unavailable` as long as
        another try makes sense."""
        return Written()


class JobKinds:
    def __init__(self, kinds: Iterable[JobKind]) -> None:
        """Raises `ValueError` if two kinds claim a service or a queue."""
        found = list(kinds)
        self._by_service = {service: kind for kind in found for service in kind.services}
        if len(self._by_service) < sum(len(kind.services) for kind in found) or len(self.queues) < len(found):
            raise ValueError("each kind of job has services and a queue of its own")

    @property
    def services(self) -> dict[str, str]:
        """The values of `service` in any job, each with the user's word for its devices."""
        return {service: kind.services[service] for service, kind in self._by_service.items()}

    @property
    def queues(self) -> set[str]:
        return {kind.batch_task.queue for kind in self._by_service.values()}

    def of(self, service: str) -> JobKind:
        if service not in self._by_service:
            raise UnknownKind(f"this process knows no jobs of the service {service!r}")
        return self._by_service[service]
