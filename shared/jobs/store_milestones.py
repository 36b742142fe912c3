"""News of jobs that were not told yet: milestones for the audit and the bus, and due mails.

The move of a job stores its milestone and its mail in the job's document, so each exists exactly if its move does.
`milestone_since` and `mail_since` exist while there is one; sparse indexes find them.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.core.instants import EPOCH, ns
from shared.drivers.mongo.documents import BSON_TYPES, Aggregate, Document, translate_errors
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.events import DueMail, Milestone
from shared.jobs.rules.jobs import job_key
from shared.jobs.store_jobs import KEY_FIELDS, key_of, one_job, read_any_job

_SHOWN = KEY_FIELDS | dict.fromkeys(
    ("app_id", "group_id", "name", "template_names", "totals", "milestones", "schedule"), 1
)


class JobMilestones(Struct, frozen=True):
    """The milestones of one job that are not taken yet, and as they are `stored`: a later version may store more of
    each."""

    id: str
    key: str
    app_id: str
    group_id: str
    name: str
    schedule: str
    totals: Totals | None
    milestones: tuple[Milestone, ...]
    stored: list[Document]


class Milestones(Aggregate):
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
        name=document["name"] or ",".join(document["template_names"]),
        schedule=document.get("schedule", ""),
        totals=msgspec.convert(document["totals"], Totals | None),
        milestones=msgspec.convert(stored, tuple[Milestone, ...], builtin_types=BSON_TYPES),
        stored=stored,
    )


class Mails(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        await self._jobs.create_index([("mail_since", ASCENDING)], sparse=True)

    async def find_waiting(self, before: datetime) -> AsyncIterator[str]:
        """The keys of jobs with mails that became due, or were last queued, before `before`."""
        with translate_errors():
            async for document in self._jobs.find({"mail_since": {"$lt": ns(before)}}, {"incarnation": 1}):
                yield job_key(document["_id"], document["incarnation"])

    async def touch(self, job_id: str, at: datetime) -> None:
        waiting = one_job(job_id) | {"mail_since": {"$exists": True}}
        await self._jobs.update_one(waiting, {"$set": {"mail_since": ns(at)}})

    async def lease(self, job_id: str, mail: DueMail, token: str, *, now: datetime, until: datetime) -> bool:
        """Take the right to send a due mail; a job sends one mail at a time."""
        query = one_job(job_id) | {
            "mails": msgspec.to_builtins(mail),
            "$or": [{"mail_lease": {"$exists": False}}, {"mail_lease.until": {"$lte": now}}],
        }
        lease = {"token": token, "until": until}
        result = await self._jobs.update_one(query, {"$set": {"mail_lease": lease}})
        return result.modified_count == 1

    async def release(self, job_id: str, token: str) -> None:
        leased = one_job(job_id) | {"mail_lease.token": token}
        await self._jobs.update_one(leased, {"$unset": {"mail_lease": ""}})

    async def note_sent(self, job_id: str, mail: DueMail) -> None:
        await self._jobs.update_one(one_job(job_id), {"$pull": {"mails": msgspec.to_builtins(mail)}})
        await self._jobs.update_one(one_job(job_id) | {"mails": []}, {"$unset": {"mail_since": ""}})
