"""Milestones: moves of jobs that the audit and the bus do not have yet. The move stores its milestone in the job's
document. `milestone_since` exists while there is one; a sparse index finds it."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import EPOCH
from shared.domain.jobs.events import Milestone
from shared.domain.jobs.totals import Totals
from shared.store.documents import BSON_TYPES, Aggregate, Document
from shared.store.jobs.job_documents import KEY_FIELDS, key_of, one_job, read_any_job

_SHOWN = KEY_FIELDS | dict.fromkeys(("app_id", "group_id", "name", "template_names", "totals", "milestones"), 1)


class JobMilestones(Struct, frozen=True):
    """The milestones of one job that are not taken yet, and as they are `stored`: a later version may store more of
    each."""

    id: str
    key: str
    app_id: str
    group_id: str
    name: str
    totals: Totals | None
    milestones: tuple[Milestone, ...]
    stored: list[Document]


class Milestones(Aggregate):
    """The milestones in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        await self._jobs.create_index([("milestone_since", ASCENDING)], sparse=True)

    async def find(self, *, limit: int) -> list[JobMilestones]:
        """The milestones of up to `limit` jobs, the earliest first."""
        query = {"milestone_since": {"$gt": EPOCH}}
        found = self._jobs.find(query, _SHOWN).sort("milestone_since", ASCENDING).limit(limit)
        return [_milestones_of(document) async for document in found]

    async def find_of(self, job_keys: Sequence[str]) -> list[JobMilestones]:
        found = [_milestones_of(document) async for document in read_any_job(self._jobs, job_keys, _SHOWN)]
        return [each for each in found if each.milestones]

    async def take(self, taken: Sequence[JobMilestones]) -> None:
        """Remove recorded milestones. A job with a new milestone since keeps all."""
        unset = {"$unset": {"milestones": "", "milestone_since": ""}}
        changes = [UpdateOne(one_job(each.key) | {"milestones": each.stored}, unset) for each in taken]
        if changes:
            await self._jobs.bulk_write(changes, ordered=False)


def _milestones_of(document: Document) -> JobMilestones:
    stored = document.get("milestones", [])
    return JobMilestones(
        id=document["_id"],
        key=key_of(document),
        app_id=document["app_id"],
        group_id=document["group_id"],
        name=document.get("name") or ",".join(document["template_names"]),
        totals=msgspec.convert(document.get("totals"), Totals | None),
        milestones=msgspec.convert(stored, tuple[Milestone, ...], builtin_types=BSON_TYPES),
        stored=stored,
    )
