"""The sending of one job, prepared once for all its batches: the renderer of its records, and their topic."""

from cachetools import LRUCache
from msgspec import Struct

from shared.domain.errors import Unavailable
from shared.domain.jobs.jobs import Job
from shared.domain.push.records import SERVICES, RecordRules
from shared.domain.push.rendering import Renderer
from shared.domain.push.sizes import fitting_records
from shared.domain.push.topics import topic_name
from shared.store import Store

_REMEMBERED_JOBS = 16


class Sending(Struct, frozen=True):
    """The renderer of a job's records, their topic, and how many fit into one part."""

    job: Job
    renderer: Renderer
    topic: str
    fitting: int


class Sendings:
    """The sendings of recently sent jobs."""

    def __init__(self, store: Store, topic_template: str, rules: RecordRules) -> None:
        self._store = store
        self._topic_template = topic_template
        self._rules = rules
        self._sendings: LRUCache[str, Sending] = LRUCache(_REMEMBERED_JOBS)

    async def prepare(self, job_key: str) -> Sending:
        """The sending of this job. Raises `Unavailable` if the job is gone or of another kind."""
        known = self._sendings.get(job_key)
        if known is None:
            job = await self._store.jobs.get(job_key)
            if job is None or job.service not in SERVICES:
                raise Unavailable(f"the job {job_key} is gone or its batches are sent by another stage")
            topic = topic_name(self._topic_template, job.app_name, job.service)
            known = Sending(job, Renderer(job, self._rules), topic, fitting_records(job))
            self._sendings[job_key] = known
        return known

    async def find_job(self, job_key: str) -> Job | None:
        """The job, from memory if one of its batches was sent recently."""
        known = self._sendings.get(job_key)
        return await self._store.jobs.view(job_key) if known is None else known.job
