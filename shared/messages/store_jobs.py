"""The jobs of credentials: the running ones, their order, the moves of their batches, and reopened ones.

`had` is the job's used share (`shared.messages.rules.places`); a job that has not begun has none. `resend` names
the states of the messages that a reopened job sends.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct
from pymongo import ASCENDING, ReturnDocument, UpdateOne
from pymongo.asynchronous.database import AsyncDatabase

from shared.audience.rules.audiences import normal_locale
from shared.core.documents import source_of, sources
from shared.core.instants import from_ns
from shared.drivers.mongo.documents import Aggregate, Document, json_text
from shared.jobs.rules.batches import SETTLED, Batch, BatchStatus, Receipt, is_failure
from shared.jobs.rules.events import DueMail, Event, Milestone
from shared.jobs.rules.jobs import TRANSITIONS, Job, JobStatus, Standing
from shared.jobs.store_batches import batch_of, receipt_document
from shared.jobs.store_jobs import (
    KEY_FIELDS,
    STANDING_FIELDS,
    change_job,
    job_of,
    key_of,
    one_job,
    read_any_job,
    standing_of,
)
from shared.messages.rules.credentials import WaitingJob
from shared.messages.rules.jobs import (
    MESSAGE_JOB_TRANSITIONS,
    MESSAGE_TRANSITIONS,
    Bounces,
    MessageOptions,
    Resending,
    options_of,
)
from shared.messages.rules.ledger import MessageState
from shared.messages.rules.places import Rank
from shared.messages.rules.suppressions import EVERYTHING
from shared.messages.store_ledger import beginning_with


class MessageBatches(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._batches = database["batches"]

    async def find_planned(self, job_id: str, *, since: int, now: datetime) -> Batch | None:
        """The job's first planned batch from the ordinal `since` on that may be sent at `now`."""
        query = _query_planned(job_id) | {"ordinal": {"$gte": since}, "not_before": {"$not": {"$gt": now}}}
        found = await self._batches.find_one(query, sort=[("ordinal", ASCENDING)])
        return None if found is None else batch_of(found)

    async def put_back(self, batch: Batch, *, not_before: datetime | None = None) -> Batch | None:
        """sending → planned, if its owner is unchanged; not sent before `not_before`."""
        change: Document = {"owner": ""} | ({} if not_before is None else {"not_before": not_before})
        unset = {"not_before": ""} if not_before is None else {}
        return await self._move(batch, BatchStatus.PLANNED, change, unset)

    async def bring_forward(self, job_id: str) -> None:
        waiting = _query_planned(job_id) | {"not_before": {"$exists": True}}
        await self._batches.update_many(waiting, {"$unset": {"not_before": ""}})

    async def fit(self, batch: Batch, *, size: int, receipt: Receipt) -> Batch | None:
        """Store the number of recipients and the present receipt, if its owner is unchanged."""
        query = {"_id": batch.id, "owner": batch.owner, "attempts": batch.attempts}
        fields = {"size": size, "receipt": receipt_document(receipt)}
        change = {"$set": fields, "$currentDate": {"changed_at": True}}
        found = await self._batches.find_one_and_update(query, change, return_document=ReturnDocument.AFTER)
        return None if found is None else batch_of(found)

    async def settle(
        self, batch: Batch, *, to: BatchStatus, receipt: Receipt, size: int, tally: Mapping[str, int] | None = None
    ) -> Batch | None:
        """sending → settled, with `size` recipients, if its owner is unchanged. A `tally` counts entries that are not
        stored."""
        change: Document = {"receipt": receipt_document(receipt), "size": size, "settled": True, "owner": ""}
        change |= {"failed_of": batch.job_id} if is_failure(to) else {}
        change |= {f"tally.{name}": count for name, count in (tally or {}).items()}
        return await self._move(batch, to, change, {"not_before": ""})

    async def _move(self, batch: Batch, to: BatchStatus, fields: Document, unset: Document) -> Batch | None:
        source = source_of(MESSAGE_TRANSITIONS, BatchStatus.SENDING, to)
        query = {"_id": batch.id, "owner": batch.owner, "attempts": batch.attempts, "status": source.value}
        change: Document = {"$set": {"status": to.value} | fields, "$currentDate": {"changed_at": True}}
        change |= {"$unset": unset} if unset else {}
        found = await self._batches.find_one_and_update(query, change, return_document=ReturnDocument.AFTER)
        return None if found is None else batch_of(found)


def _query_planned(job_id: str) -> Document:
    return {"job_id": job_id, "status": BatchStatus.PLANNED.value}


_WITHOUT = {"plan.templates": 0, "context": 0}
_OF_RUNNING = KEY_FIELDS | {"created_at": 1, "options": 1, "had": 1}


class RunningJob(Struct, frozen=True):
    """A job that sends by a credential; `had` is `None` if it has not begun."""

    key: str
    created_at: int
    share: int
    had: float | None

    def rank(self, *, by_age: bool) -> Rank:
        return (0.0 if by_age else self.had or 0.0, self.created_at, self.key)


class MessageSource(Struct, frozen=True):
    """The origin of messages of a job; `locale` is the normal form of that of most messages."""

    job_id: str
    template: str
    locale: str


class MessageJobs(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._jobs = database["jobs"]

    async def setup(self) -> None:
        order = [(field, ASCENDING) for field in ("credential_id", "open", "status", "counts_only", "created_at")]
        await self._jobs.create_index(order)
        await self._jobs.create_index([("incarnation", ASCENDING)])

    async def lists_of(self, incarnations: Collection[str]) -> dict[str, str]:
        fields = {"_id": 0, "incarnation": 1, "options": 1}
        found = await self._jobs.find({"incarnation": {"$in": sorted(incarnations)}}, fields).to_list()
        return {job["incarnation"]: msgspec.json.decode(job["options"]).get("list", EVERYTHING) for job in found}

    async def sources_of(self, incarnations: Collection[str]) -> dict[str, MessageSource]:
        fields = {"incarnation": 1, "template_names": 1, "options": 1}
        found = await self._jobs.find({"incarnation": {"$in": sorted(incarnations)}}, fields).to_list()
        return {job["incarnation"]: _source_of(job) for job in found}

    async def get_subject(self, incarnation: str, locale: str) -> str:
        """The template's subject in this normal locale, from the job's copy, with its tags; `""` without one."""
        job = await self._jobs.find_one({"incarnation": incarnation}, {"plan.templates": 1})
        templates = () if job is None else job["plan"].get("templates", ())
        bodies = (each["body"] for each in templates if normal_locale(each["locale"]) == locale)
        subjects = (msgspec.json.decode(body).get("subject") for body in bodies)
        return next((subject for subject in subjects if isinstance(subject, str)), "")

    async def count_under_way(self, app_id: str, *, most: int) -> int:
        begun = [JobStatus.RUNNING.value, JobStatus.PAUSED.value, JobStatus.TRIPPED.value]
        query = {"app_id": app_id, "status": {"$in": begun}, "credential_id": {"$gt": ""}}
        return await self._jobs.count_documents(query, limit=most)

    async def find_running(self, credential_id: str, *, since: int = 0, limit: int) -> list[RunningJob]:
        """The oldest running jobs of this credential that send, created from `since` on (ns)."""
        return await self._find_running(credential_id, since=since, limit=limit, counts_only=False)

    async def find_dry_runs(self, credential_id: str, *, limit: int) -> list[RunningJob]:
        return await self._find_running(credential_id, since=0, limit=limit, counts_only=True)

    async def find_waiting(self, credential_id: str, *, limit: int) -> list[WaitingJob]:
        found = self._jobs.find(_open_of(credential_id), _WITHOUT).sort("created_at", ASCENDING).limit(limit)
        jobs = [job_of(document | {"context": "{}"}) async for document in found]
        return [
            WaitingJob(job.key, max(from_ns(job.created_at), job.starts), job.standing.feeds)
            for job in jobs
            if not options_of(job).dry_run
        ]

    async def get_standings(self, job_keys: Sequence[str]) -> dict[str, Standing]:
        found = read_any_job(self._jobs, job_keys, STANDING_FIELDS)
        return {key_of(document): standing_of(document) async for document in found}

    async def has_open(self, credential_id: str) -> bool:
        return await self._jobs.find_one(_open_of(credential_id), {"_id": 1}) is not None

    async def join(self, job_keys: Sequence[str], had: float) -> None:
        joins = [UpdateOne(one_job(key) | {"had": None}, {"$set": {"had": had}}) for key in job_keys]
        await self._jobs.bulk_write(joins, ordered=False)

    async def count_share(self, job_key: str, had: float, *, at_least: float) -> None:
        """Add `had` to the job's share, after raising it to `at_least`."""
        counted = {"$add": [{"$max": ["$had", at_least]}, had]}
        await self._jobs.update_one(one_job(job_key), [{"$set": {"had": counted}}])

    async def get_resending(self, job_key: str) -> Resending:
        found = await self._jobs.find_one(one_job(job_key), {"round": 1, "resend": 1})
        states: Sequence[str] = (found or {}).get("resend", ())
        return Resending((found or {}).get("round", 0), frozenset(map(MessageState, states)))

    async def get_forgiven(self, job_key: str) -> Bounces:
        """The bounces of the job when it was last held for them."""
        found = await self._jobs.find_one(one_job(job_key), {"bounces": 1})
        return Bounces(**(found or {}).get("bounces", {}))

    async def hold(
        self,
        job_key: str,
        *,
        forgiven: Bounces,
        still_forgiven: Bounces,
        at: int,
        events: Sequence[Event],
        mail: DueMail | None,
        milestone: Milestone,
    ) -> Job | None:
        """Hold a running job for its bounces, which are `forgiven` from then on; `None` if it does not run, or was held
        for other bounces since."""
        running = {"status": {"$in": sorted(sources(TRANSITIONS, JobStatus.TRIPPED))}}
        before = msgspec.structs.asdict(still_forgiven) if still_forgiven != Bounces() else None
        query = one_job(job_key) | running | {"bounces": before}
        change = {"status": JobStatus.TRIPPED.value, "updated_at": at, "bounces": msgspec.structs.asdict(forgiven)}
        return await change_job(self._jobs, query, change, events=events, mail=mail, milestone=milestone)

    async def _find_running(self, credential_id: str, *, since: int, limit: int, counts_only: bool) -> list[RunningJob]:
        query = _open_of(credential_id) | {"status": JobStatus.RUNNING.value, "counts_only": counts_only}
        query["created_at"] = {"$gte": since}
        found = self._jobs.find(query, _OF_RUNNING).sort("created_at", ASCENDING).limit(limit)
        return [_running_job(document) async for document in found]


def _source_of(document: Document) -> MessageSource:
    options = msgspec.json.decode(document["options"])
    locale = normal_locale(options.get("locale", "en"))
    return MessageSource(document["_id"], ",".join(document["template_names"]), locale)


def _open_of(credential_id: str) -> Document:
    return {"credential_id": credential_id, "open": True}


def _running_job(document: Document) -> RunningJob:
    options = msgspec.json.decode(document["options"], type=MessageOptions)
    return RunningJob(key_of(document), int(document["created_at"]), options.share, document.get("had"))


_OF_ENTRIES = [f"$tally.{state.value}" for state in MessageState if state is not MessageState.UNSENT]
_ENTRIES: Document = {"$add": [{"$ifNull": [count, 0]} for count in _OF_ENTRIES]}
_SENT_TO_FEWER: Document = {"status": BatchStatus.FAILED.value, "$expr": {"$gt": ["$size", _ENTRIES]}}
"""A failed batch with fewer entries than recipients."""
_ENDED = sorted(sources(MESSAGE_JOB_TRANSITIONS, JobStatus.RUNNING) & {JobStatus.COMPLETED, JobStatus.STOPPED})


class Reopening(Aggregate):
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
        query["round"] = job.round
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
