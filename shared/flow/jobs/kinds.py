"""Kinds of jobs: what differs from kind to kind in the life that all jobs share. Push is one.

The `service` of a job says of which kind it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from msgspec import Struct

from shared.domain.audience.named_columns import NamedColumns
from shared.domain.errors import Unavailable
from shared.domain.jobs.jobs import Job
from shared.domain.jobs.tasks import SendBatch
from shared.flow.jobs.feeders import BatchFeeder


class UnknownKind(Unavailable):
    """Only a process of another version knows this kind of job."""


class Written(Struct, frozen=True):
    """The path of a file, or why there is none; both are empty where there is nothing to write."""

    path: str = ""
    failure: str = ""


class JobKind(ABC):
    """The steps that one kind of job does in its own way."""

    batch_task: type[SendBatch]
    """The task that sends a batch, on a queue of the kind's own."""

    feeder: BatchFeeder | None = None  # where batches stand in chains, these feed themselves

    keeps_batches = False
    """Whether the kind forgets the batches of its closed jobs by itself, in its own time."""

    @property
    @abstractmethod
    def services(self) -> Mapping[str, str]:
        """The values of `service` in its jobs, and what people call the devices of each."""

    @abstractmethod
    def recipients_per_part(self, job: Job) -> int:
        """How many recipients one part of a batch may have."""

    def batch_size(self, job: Job, most: int) -> int:
        """How many recipients a batch has, or how many users of a file, who may have two devices each; no more than
        `most`, which is what the deployment allows."""
        fitting = self.recipients_per_part(job)
        return min(most, max(1, fitting // 2) if job.csv_path else fitting)

    def named_columns(self, job: Job) -> NamedColumns | None:
        """Which columns of its file or table the job reads by their names; `None` where it reads those of a push. The
        job has the templates of its plan."""
        return None

    @abstractmethod
    async def prepare(self, job: Job) -> None:
        """Check the templates, which stand in the job's plan, and make what sending needs, before the audience is
        fixed.

        Raises:
            Invalid: the job can never be sent.
            Unavailable: a server is away.
        """

    async def forget_some(self, job: Job) -> bool:
        """Forget some of what the kind has stored of a closed job, which is forgotten next; `False` once nothing is
        left. Raises `Unavailable`."""
        return False

    async def write_at_end(self, job: Job) -> Written:
        """The file that is written once all batches are settled, right before the job closes. Raises `Unavailable` as
        long as it is worth another try."""
        return Written()


class JobKinds:
    """All kinds that this process knows."""

    def __init__(self, kinds: Iterable[JobKind]) -> None:
        """Raises `ValueError` for a service or a queue that two kinds claim."""
        found = list(kinds)
        self._by_service = {service: kind for kind in found for service in kind.services}
        if len(self._by_service) < sum(len(kind.services) for kind in found) or len(self.queues) < len(found):
            raise ValueError("each kind of job has services and a queue of its own")

    @property
    def services(self) -> dict[str, str]:
        """The values of `service` in any job, and what people call the devices of each."""
        return {service: kind.services[service] for service, kind in self._by_service.items()}

    @property
    def queues(self) -> set[str]:
        """The queues that carry batches."""
        return {kind.batch_task.queue for kind in self._by_service.values()}

    def of(self, service: str) -> JobKind:
        """The kind of jobs with this service.

        Raises:
            UnknownKind: there is none here.
        """
        if service not in self._by_service:
            raise UnknownKind(f"this process knows no jobs of the service {service!r}")
        return self._by_service[service]
