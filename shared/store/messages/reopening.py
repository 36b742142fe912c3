"""Reopening ended jobs, for messages that were not sent or did not arrive."""

from collections.abc import Collection, Sequence

from pymongo.asynchronous.database import AsyncDatabase

from shared.domain.jobs.batches import SETTLED, BatchStatus
from shared.domain.jobs.events import Event
from shared.domain.jobs.jobs import Job, JobStatus
from shared.domain.messages.jobs import MESSAGE_JOB_TRANSITIONS
from shared.domain.messages.ledger import MessageState
from shared.domain.transitions import sources
from shared.store.documents import Aggregate, Document, json_text
from shared.store.jobs.job_changes import change_job
from shared.store.jobs.job_documents import one_job
from shared.store.messages.sums import beginning_with

_OF_ENTRIES = [f"$tally.{state.value}" for state in MessageState if state is not MessageState.UNSENT]
_ENTRIES: Document = {"$add": [{"$ifNull": [count, 0]} for count in _OF_ENTRIES]}
_SENT_TO_FEWER: Document = {"status": BatchStatus.FAILED.value, "$expr": {"$gt": ["$size", _ENTRIES]}}
"""A failed batch with fewer entries than recipients."""

_ENDED = sorted(sources(MESSAGE_JOB_TRANSITIONS, JobStatus.RUNNING) & {JobStatus.COMPLETED, JobStatus.STOPPED})


class Reopening(Aggregate):
    """Jobs and batches that are sent again."""

    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]
        self._batches = database["batches"]
        self._tallies = database["tallies"]

    async def reopen_job(
        self, job: Job, states: Collection[MessageState], *, at: int, events: Sequence[Event] = ()
    ) -> Job | None:
        """Reopen an ended job, to send its messages in these states; `None` if it has not ended, was reopened since it
        was read, or has no batches any more."""
        query = one_job(job.key) | {"status": {"$in": _ENDED}, "open": False}
        query |= {"ledger_since": {"$type": "date"}, "forgetting": None}
        query["round"] = job.round or {"$in": [0, None]}
        fields: Document = {
            "status": JobStatus.RUNNING.value,
            "open": True,
            "round": job.round + 1,
            "reopening": True,
            "resend": sorted(state.value for state in states),
            "had": None,
            "totals": None,
            "reasons": json_text({}),
            "failure": "",
            "completed_at": 0,
            "updated_at": at,
            "personal_since": None,
        }
        return await change_job(self._jobs, query, fields, events=events)

    async def reopen_batches(self, job: Job, states: Collection[MessageState]) -> None:
        """Return the job's settled batches that may have messages in these states to its plan."""
        queries: list[Document] = [{f"tally.{state.value}": {"$gt": 0}} for state in sorted(states)]
        queries.append({"ordinal": {"$in": await self._find_by_callbacks(job, states)}})
        if MessageState.UNSENT in states:
            queries += [{"status": BatchStatus.DROPPED.value}, _SENT_TO_FEWER]
        # Batches of this round are back already: a late retry finds nothing to do.
        earlier = {"$not": {"$gte": job.round}}
        settled = {"job_id": job.key, "settled": True, "status": {"$in": sorted(SETTLED)}, "round": earlier}
        planned = {"status": BatchStatus.PLANNED.value, "settled": False, "owner": "", "round": job.round}
        change = {"$set": planned, "$unset": {"failed_of": "", "not_before": ""}, "$currentDate": {"changed_at": True}}
        await self._batches.update_many(settled | {"$or": queries}, change)

    async def end_reopening(self, job: Job) -> None:
        """Record that all these batches are back in the plan."""
        await self._jobs.update_one(
            one_job(job.key) | {"round": job.round, "reopening": True}, {"$set": {"reopening": False}}
        )

    async def _find_by_callbacks(self, job: Job, states: Collection[MessageState]) -> list[int]:
        """The batches with messages that callbacks have brought into these states."""
        wanted = {"$or": [{state.value: {"$gt": 0}} for state in sorted(states)]}
        found = self._tallies.find(beginning_with(f"{job.incarnation}.") | wanted, {"_id": 1})
        return [int(document["_id"].split(".")[1]) async for document in found]
