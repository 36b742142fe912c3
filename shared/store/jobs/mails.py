"""Due mails. The move of a job stores its mail in the job's document, so a mail exists exactly if its move does.
`mail_since` exists while a mail is due. A `job_id` is a job's id or its key, as for `Jobs`."""

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec
from pymongo import ASCENDING
from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.instants import ns
from shared.domain.jobs.events import DueMail
from shared.domain.jobs.jobs import job_key
from shared.store.documents import Aggregate, Document, translate_errors
from shared.store.jobs.job_documents import one_job


class Mails(Aggregate):
    """The mails in the `jobs` collection."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        await self._jobs.create_index([("mail_since", ASCENDING)], sparse=True)

    async def find_waiting(self, before: datetime) -> AsyncIterator[str]:
        """The keys of jobs with mails that became due, or were last queued, before `before`."""
        with translate_errors():
            async for document in self._jobs.find({"mail_since": {"$lt": ns(before)}}, {"incarnation": 1}):
                yield job_key(document["_id"], document.get("incarnation", ""))

    async def touch(self, job_id: str, at: datetime) -> None:
        """Record that the job's mails were queued at `at`."""
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
        """Record that the mail need not be sent any more."""
        await self._jobs.update_one(one_job(job_id), {"$pull": {"mails": msgspec.to_builtins(mail)}})
        await self._jobs.update_one(one_job(job_id) | {"mails": []}, {"$unset": {"mail_since": ""}})
