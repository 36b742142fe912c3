"""What must hold after every step, and what must have come about in the end.

It is read from outside: from the documents, from what Kafka has committed, and from the steps that were taken.
"""

import asyncio
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, MutableMapping, Sequence
from datetime import timedelta
from typing import Any

import structlog

from shared.audience.rules.audiences import BEGINNING
from shared.core.errors import CarillonError
from shared.drivers.mongo.documents import Document
from shared.jobs.rules.batches import TRANSITIONS as BATCH_MOVES
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.jobs.rules.jobs import TRANSITIONS as JOB_MOVES
from shared.jobs.rules.jobs import JobStatus
from tests.models.push.devices import PoisonedError
from tests.models.push.processes import MARGIN_SECONDS, TRANSACTION_SECONDS, ModelServers
from tests.models.push.promise import Promise
from tests.models.push.side_promises import SidePromises
from tests.models.push.transactions import Marker, Sent
from tests.models.push.weather import Weather
from tests.models.simulated.simulation import Step
from tests.models.simulated.worlds import Broken

_SENDING = BatchStatus.SENDING
_IN_FLIGHT = {BatchStatus.QUEUED, _SENDING}
_OWNED_FOR = timedelta(seconds=TRANSACTION_SECONDS + MARGIN_SECONDS)
"""So long a batch may be in a lane's hands before upkeep has it recovered."""

_END = "end"


class Promises:
    """What is known of a run so far. It comes to an end with the `expected` jobs; `beside` knows the rest of it."""

    def __init__(
        self,
        servers: ModelServers,
        weather: Weather,
        slots: int,
        devices: Sequence[int],
        expected: Collection[str],
        beside: SidePromises,
    ) -> None:
        self._servers = servers
        self._weather = weather
        self._slots = slots
        self._devices = set(devices)
        self._expected = set(expected)
        self.beside = beside
        self._jobs: dict[str, Document] = {}
        self._plans: dict[str, list[Document]] = {}
        self._out: defaultdict[str, list[Sent]] = defaultdict(list)
        self._records: Counter[tuple[str, str]] = Counter()
        self._looked = 0
        self._markers: dict[tuple[str, int], Marker] = {}
        self._passed: dict[tuple[asyncio.Task[Any] | None, str], str | None] = {}
        self._losers: set[asyncio.Task[Any] | None] = set()
        self._delivered = 0
        self._faults: list[str] = []

    def check(self, step: Step | None, result: Any) -> None:
        """Raise `Broken` unless every promise was kept by what happened last."""
        if step is not None:
            self._check_gate(step, result)
            self._check_takes(step, result)
            self.beside.check_step(step)
        self._check_records()
        self._check_markers()
        self._check_documents()
        self.beside.check()
        if self._faults:
            raise Broken(Promise.FAULT, self._faults)

    def check_end(self) -> None:
        """Everything is closed: is it as it should be?"""
        for job in self._jobs.values():
            if job["status"] == JobStatus.COMPLETED:
                self._check_completed(job)
        self.beside.check_end()

    def hear(self, task: dict[str, Any]) -> None:
        """A message has come to somebody."""
        if task["type"] == "send":
            self._delivered += 1

    def log(self, logger: object, name: str, event: MutableMapping[str, Any]) -> str:
        """What the product says went wrong: only what its servers did may have been expected."""
        error = sys.exception() if event.get("exc_info") is True else event.get("exc_info")
        if isinstance(error, BaseException) and not isinstance(error, CarillonError | PoisonedError):
            self._faults.append(f"{event['event']}: {error!r}")
        raise structlog.DropEvent

    @property
    def is_all_done(self) -> bool:
        """Whether no job has anything left to do, and nothing is left to be told."""
        is_closed = self._jobs.keys() >= self._expected and not any(job["open"] for job in self._jobs.values())
        return is_closed and not self.beside.waits(self._jobs)

    def is_held(self, job_id: str) -> bool:
        """Whether a user has to let the job go on."""
        return job_id in self._jobs and self._jobs[job_id]["status"] in {JobStatus.PAUSED, JobStatus.TRIPPED}

    def unsettled(self) -> Iterator[str]:
        """What is left."""
        for job in self._jobs.values():
            if job["open"]:
                yield f"job {job['_id']} {job['status']}"
        for plan in self._plans.values():
            yield from (f"{batch['_id']} {batch['status']}" for batch in plan if not batch.get("settled", True))

    def _check_gate(self, step: Step, result: Any) -> None:
        """Every take of a part is sent behind a look of its own that found the job running."""
        if step.name == "jobs.get_standing":
            key = step.task, str(step.about[0])
            self._passed.pop(key, None)
            if not isinstance(result, Exception) and result is not None and result.feeds:
                self._passed[key] = None
        elif step.name == "lane.append" and isinstance(batch := step.about[0], Batch):
            key = step.task, batch.job_id
            if self._passed.get(key, "") not in {None, batch.take}:
                raise Broken(Promise.BEHIND, batch.id)
            self._passed[key] = batch.take

    def _check_takes(self, step: Step, result: Any) -> None:
        """Whoever loses a take leaves the batch alone; and in order, nobody fences a lane that is well."""
        if step.name in {"batches.take", "lane.fence"} and step.task in self._losers:
            raise Broken(Promise.CHURN, f"{step.process.name} has lost, and goes on with {step.name}")
        if step.name == "batches.take" and result is None and step.answer.exception() is None:
            self._losers.add(step.task)
        if step.name == "lane.fence" and self._weather.orderly and step.about[0] not in self._servers.kafka.given_up:
            since = self._servers.clock.now() - _OWNED_FOR
            for batch in (batch for plan in self._plans.values() for batch in plan if batch["status"] == _SENDING):
                if batch["owner"] == step.about[0] and batch["taken_at"] > since:
                    raise Broken(Promise.FENCED, batch["_id"])

    def _check_records(self) -> None:
        fresh = self._servers.kafka.out[self._looked :]
        self._looked += len(fresh)
        for sent in fresh:
            self._out[sent.batch].append(sent)
            job = sent.batch.partition("/")[0]
            for record in sent.records:
                device = job, json.loads(record)["DeviceToken"]
                self._records[device] += 1
                if self._records[device] > 1:
                    raise Broken(Promise.TWICE, f"{device} by {sent.batch} part {sent.number}")
        for batch_id in {sent.batch for sent in fresh}:
            self._check_parts(self._batch(batch_id))

    def _check_markers(self) -> None:
        now = self._servers.kafka.markers
        for slot, marker in now.items():
            old = self._markers.get(slot)
            if old is None or old is marker:
                continue
            before, after = ((each.ordinal, each.part.number) for each in (old, marker))
            if after < before or (after == before and old != marker):
                raise Broken(Promise.BACKWARDS, f"{old} -> {marker}")
        self._markers = dict(now)

    def _check_documents(self) -> None:
        written = self._servers.database.written
        if "jobs" in written:
            self._see_jobs({job["_id"]: job for job in self._servers.database.documents("jobs")})
        if "batches" in written:
            self._see_batches(self._servers.database.documents("batches"))
        if written & {"jobs", "batches"}:
            for job in self._jobs.values():
                self._check_closed(job)
        if "feedback_positions" in written:
            self.beside.check_feedback(self._jobs)
        written.clear()

    def _see_jobs(self, jobs: dict[str, Document]) -> None:
        for job_id, job in jobs.items():
            before = self._jobs.get(job_id)
            if before is not None:
                _check_move(job_id, JobStatus(before["status"]), JobStatus(job["status"]), JOB_MOVES)
            self.beside.see_job(job, before, self._plans.get(_key(job), ()))
        self._jobs = jobs

    def _see_batches(self, documents: Sequence[Document]) -> None:
        before = {batch["_id"]: batch for plan in self._plans.values() for batch in plan}
        self._plans = {}
        for batch in documents:
            self._plans.setdefault(batch["job_id"], []).append(batch)
        for batch in documents:
            old = before.get(batch["_id"])
            if batch["status"] != _END and batch != old:
                self._check_batch(batch, old)
        for key, plan in self._plans.items():
            self._check_plan(key, plan)
        takes = sum(batch.get("attempts", 0) - batch.get("parts", 0) for batch in documents)
        if self._weather.mild and takes > self._delivered:
            raise Broken(Promise.CHURN, f"{takes} takes of {self._delivered} messages")

    def _check_batch(self, batch: Document, old: Document | None) -> None:
        if old is not None:
            _check_move(batch["_id"], BatchStatus(old["status"]), BatchStatus(batch["status"]), BATCH_MOVES)
        self._check_parts(batch)
        chain = self._plans[batch["job_id"]][batch["ordinal"] % self._slots :: self._slots]
        flying = [each["_id"] for each in chain if each["status"] in _IN_FLIGHT]
        if len(flying) > 1:
            raise Broken(Promise.CROWDED, flying)

    def _check_parts(self, batch: Document) -> None:
        """The parts of a batch that are out, once each, are those that it knows; and perhaps one more of its owner."""
        out = self._out[batch["_id"]]
        known, numbers = batch["parts"], [sent.number for sent in out]
        status, receipt = BatchStatus(batch["status"]), batch["receipt"]["sent"]
        may_be_out = [list(range(1, known + 1))]
        if status in {_SENDING, BatchStatus.SENT, BatchStatus.FAILED}:
            may_be_out.append(list(range(1, known + 2)))
        if numbers not in may_be_out:
            raise Broken(Promise.UNTRUE, f"{batch['_id']} is {status} with {known} parts, out are {numbers}")
        if len(numbers) > known and status is _SENDING and out[-1].lane != batch["owner"]:
            raise Broken(Promise.UNTRUE, f"{batch['_id']} is out by {out[-1].lane}, owned by {batch['owner']}")
        settled_or_unowned = numbers if status is not _SENDING else numbers[:known]
        told = sum(len(sent.records) for sent in out[: len(settled_or_unowned)])
        if receipt != told:
            raise Broken(Promise.UNTRUE, f"{batch['_id']} is {status} and tells of {receipt} records, out are {told}")
        if (status is _SENDING) > bool(batch["owner"]):
            raise Broken(Promise.UNTRUE, f"{batch['_id']} is sending without an owner")

    def _check_plan(self, key: str, plan: Sequence[Document]) -> None:
        """The batches lie end to end, and the plan ends with the audience or a stop."""
        upto = BEGINNING
        for ordinal, entry in enumerate(plan):
            if entry["ordinal"] != ordinal or (entry["status"] == _END and ordinal < len(plan) - 1):
                raise Broken(Promise.TORN, f"{key}: {[each['_id'] for each in plan]}")
            if entry["status"] != _END:
                if entry["range"]["after"] != upto:
                    raise Broken(Promise.TORN, f"{entry['_id']} begins at {entry['range']['after']}, not at {upto}")
                upto = entry["range"]["upto"]

    def _check_closed(self, job: Document) -> None:
        key = _key(job)
        plan = self._plans.get(key, [])
        if job["open"]:
            return
        if not plan or plan[-1]["status"] != _END or not all(batch["settled"] for batch in plan[:-1]):
            raise Broken(
                Promise.TOTALS, f"{key} is closed, its plan is {[(each['_id'], each['status']) for each in plan]}"
            )
        sent = sum(count for (owner, _), count in self._records.items() if owner == key)
        if job["totals"]["sent"] != sent or job["totals"]["batches"] != len(plan) - 1:
            raise Broken(Promise.TOTALS, f"{key}: {job['totals']}, out are {sent}")

    def _check_completed(self, job: Document) -> None:
        """Whoever was there from the beginning got a record, but for batches that failed."""
        key = _key(job)
        failed = [batch["range"] for batch in self._plans[key] if batch["status"] == BatchStatus.FAILED]
        for device in self._devices:
            excused = any(keys["after"] < device <= keys["upto"] for keys in failed)
            if not excused and not self._records[key, str(device)]:
                raise Broken(Promise.MISSED, f"{key}: {device}")

    def _batch(self, batch_id: str) -> Document:
        plan = self._plans[batch_id.partition("/")[0]]
        return next(batch for batch in plan if batch["_id"] == batch_id)


def _check_move(what: str, old: Any, new: Any, moves: dict[Any, frozenset[Any]]) -> None:
    if old is not new and new not in moves[old]:
        raise Broken(Promise.ILLEGAL, f"{what}: {old} -> {new}")


def _key(job: Document) -> str:
    return f"{job['_id']}.{job['incarnation']}"
