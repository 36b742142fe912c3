"""Milestones: what jobs came to by themselves, of which the audit is still to be told. Each stands in its job's
document, put there by the move that it tells of. `milestone_since` is there while one does; a sparse index finds it.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import EPOCH
from shared.domain.jobs.events import Milestone
from shared.store.documents import BSON_TYPES, Document, translate_errors
from shared.store.jobs.job_documents import KEY_FIELDS, any_job, key_of, one_job

_SHOWN = KEY_FIELDS | {"app_id": 1, "template_names": 1, "milestones": 1}


class JobMilestones(Struct, frozen=True):
    """Those of one job that nobody has taken yet, and as they are `stored`: a later version may store more of each."""

    id: str
    key: str
    app_id: str
    template_names: tuple[str, ...]
    milestones: tuple[Milestone, ...]
    stored: list[Document]


class Milestones:
    """The milestones in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        """Make the index."""
        await self._jobs.create_index([("milestone_since", ASCENDING)], sparse=True)

    async def find(self, *, limit: int) -> list[JobMilestones]:
        """Those of some jobs, the earliest first."""
        query = {"milestone_since": {"$gt": EPOCH}}
        with translate_errors():
            found = self._jobs.find(query, _SHOWN).sort("milestone_since", ASCENDING).limit(limit)
            return [_milestones_of(document) async for document in found]

    async def find_of(self, job_keys: Sequence[str]) -> list[JobMilestones]:
        """Those of these jobs."""
        with translate_errors():
            found = [_milestones_of(document) async for document in self._jobs.find(any_job(job_keys), _SHOWN)]
        return [each for each in found if each.milestones]

    async def take(self, taken: Sequence[JobMilestones]) -> None:
        """Note that the audit has been told of these. A job that has come to another one meanwhile keeps all."""
        unset = {"$unset": {"milestones": "", "milestone_since": ""}}
        changes = [UpdateOne(one_job(each.key) | {"milestones": each.stored}, unset) for each in taken]
        if changes:
            with translate_errors():
                await self._jobs.bulk_write(changes, ordered=False)


def _milestones_of(document: Document) -> JobMilestones:
    stored = document.get("milestones", [])
    return JobMilestones(
        id=document["_id"],
        key=key_of(document),
        app_id=document["app_id"],
        template_names=tuple(document["template_names"]),
        milestones=msgspec.convert(stored, tuple[Milestone, ...], builtin_types=BSON_TYPES),
        stored=stored,
    )
