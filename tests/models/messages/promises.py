"""What messages promise, checked from outside after every choice: by what stands in the store, and by the calls that
the provider had."""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, MutableMapping, Sequence
from enum import StrEnum
from typing import Any

import structlog
from msgspec import Struct

from shared.core.errors import CarillonError
from shared.drivers.mongo.documents import Codec, Document
from shared.jobs.rules.batches import BatchStatus
from shared.jobs.rules.jobs import JobStatus
from shared.messages.rules.credentials import CredentialStatus, OnUnknown, SendOrder
from shared.messages.rules.jobs import MESSAGE_JOB_TRANSITIONS, MESSAGE_TRANSITIONS
from shared.messages.rules.ledger import RANKS, Message, MessageState, add_tallies, difference, prefix_of
from tests.models.messages.processes import ModelServers
from tests.models.messages.provider import ProviderCall
from tests.models.messages.rates import Rates
from tests.models.messages.weather import MessageWeather
from tests.models.simulated.simulation import Step
from tests.models.simulated.worlds import Broken

_STOPS_WITHIN_SECONDS = 1.0
_FED_WITHIN_SECONDS = 0.1
_FINAL = {MessageState.SENT, MessageState.DELIVERED, MessageState.READ, MessageState.FAILED, MessageState.INVALID}
_TOOK = {MessageState.SENT, MessageState.DELIVERED, MessageState.READ}
_codec = Codec(Message)


class Promise(StrEnum):
    """What can be broken, in the words of a failed test."""

    TWICE = "an attempt is called twice"
    HELD = "a message is called again behind anybody's back"
    UNNOTED = "a call begins that is not written ahead, or that others have judged"
    FAST = "calls come too fast"
    UNTRUE = "an entry does not tell what was called"
    TALLY = "a tally is no count of the entries"
    UNWANTED = "a message is sent that nobody asked for"
    ILLEGAL = "a move that the table does not have"
    FOREIGN = "an entry of nobody's row"
    CLOSED = "a job is closed too early"
    PASSED = "an older job is passed"
    DEAF = "a job sends though it does not run"
    NEVER = "not settled in the end"
    FAULT = "a fault of ours"


class _Calls(Struct):
    """What a message was called, so far."""

    attempts: set[int]
    last: ProviderCall | None = None
    round: int = 0


class Promises:
    """What is known of a run so far."""

    def __init__(self, servers: ModelServers, weather: MessageWeather, now: Any) -> None:
        self._servers = servers
        self._weather = weather
        self._now = now
        self._jobs: dict[str, Document] = {}
        self._batches: dict[str, Document] = {}
        self._entries: dict[str, Message] = {}
        self._heard: set[str] = set()
        self._calls: defaultdict[str, _Calls] = defaultdict(lambda: _Calls(set()))
        self._looked = 0
        self._rates = Rates()
        self._credentials: dict[str, Document] = {}
        self._runs_since: dict[str, float] = {}
        self._rests_since: dict[str, float] = {}
        self._due_since: dict[str, float] = {}
        self._stopped: set[str] = set()
        self._faults: list[str] = []

    def check(self, step: Step | None, result: Any) -> None:
        """Raise `Broken` unless every promise was kept by what happened last."""
        self._check_calls()
        self._check_documents(step)
        if self._faults:
            raise Broken(Promise.FAULT, self._faults)

    def check_end(self) -> None:
        """Everything is closed: is it as it should be?"""
        for key, job in self._jobs.items():
            batches = [batch for batch in self._batches.values() if batch["job_id"] == key and "range" in batch]
            if job["status"] != JobStatus.COMPLETED or key in self._stopped:
                continue
            if any(batch["status"] in {BatchStatus.DROPPED, BatchStatus.FAILED} for batch in batches):
                continue
            done = sum(entry.state in _FINAL or entry.state is MessageState.UNKNOWN for entry in self._entries_of(job))
            planned = self._servers.people.count(_table(job))
            if done != planned:
                raise Broken(Promise.CLOSED, f"{key}: {done} of {planned} messages have an outcome")

    def log(self, logger: object, name: str, event: MutableMapping[str, Any]) -> str:
        """What the product says went wrong: only what its servers did may have been expected."""
        error = sys.exception() if event.get("exc_info") is True else event.get("exc_info")
        if isinstance(error, BaseException) and not isinstance(error, CarillonError):
            self._faults.append(f"{event['event']}: {error!r}")
        raise structlog.DropEvent

    @property
    def all_closed(self) -> bool:
        """Whether no job has anything left to do."""
        return bool(self._jobs) and not any(job["open"] for job in self._jobs.values())

    def are_planned(self, jobs: int) -> bool:
        """Whether so many jobs have a plan with an end."""
        return sum("range" not in batch for batch in self._batches.values()) >= jobs

    def is_held(self, key: str) -> bool:
        """Whether a user has to let the job go on."""
        return key in self._jobs and self._jobs[key]["status"] in {JobStatus.PAUSED, JobStatus.TRIPPED}

    def is_ended(self, key: str) -> bool:
        """Whether the job may be taken up again."""
        return key in self._jobs and not self._jobs[key]["open"]

    def is_shut(self, credential_id: str) -> bool:
        """Whether a user has to let the credential send again."""
        return bool(self._credentials) and self._credentials[credential_id]["status"] != CredentialStatus.ACTIVE

    def unsettled(self) -> Iterator[str]:
        """What is left."""
        for key, job in self._jobs.items():
            if job["open"]:
                yield f"job {key} {job['status']}"
        for batch in self._batches.values():
            if not batch.get("settled", True):
                yield f"{batch['_id']} {batch['status']}"

    def _check_calls(self) -> None:
        fresh = self._servers.provider.calls[self._looked :]
        self._looked += len(fresh)
        for call in fresh:
            job = self._job_of(call.message)
            self._check_call(call, job)
            self._check_pace(call)
            self._check_standing(call, job)

    def _check_call(self, call: ProviderCall, job: Document) -> None:
        known, name = self._calls[call.message], f"{call.message}~{call.attempt}"
        if call.attempt in known.attempts:
            raise Broken(Promise.TWICE, name)
        round_ = job.get("round") or 0
        is_asked_for = known.last is None or known.last.certainly_not_taken or round_ != known.round
        if not is_asked_for and self._holds(job):
            raise Broken(Promise.HELD, name)
        entry = self._entries.get(call.message)
        if entry is None or entry.attempt != call.attempt or not self._may_call(entry):
            raise Broken(Promise.UNNOTED, f"{name}: {entry}")
        known.attempts.add(call.attempt)
        known.last, known.round = call, round_

    def _may_call(self, entry: Message) -> bool:
        """News of an earlier attempt may have come since it was written ahead. By another clock, others may judge
        earlier than the caller sees."""
        return entry.is_sending or entry.id in self._heard or self._servers.clock.names > 1

    def _holds(self, job: Document) -> bool:
        """Whether nothing is repeated unless a user asks for it."""
        fields, options = self._credentials[job["credential_id"]]["fields"], job["options"]
        return not json.loads(fields)["safe"] and json.loads(options)["on_unknown"] == OnUnknown.HOLD

    def _check_pace(self, call: ProviderCall) -> None:
        if said := self._rates.check(call.account, call.at):
            raise Broken(Promise.FAST, said)

    def _check_standing(self, call: ProviderCall, job: Document) -> None:
        """In good weather a job that was held or stopped sends nothing soon after."""
        if not self._weather.fair:
            return
        key = _key(job)
        if (since := self._rests_since.get(key)) is not None and call.at - since > _STOPS_WITHIN_SECONDS:
            raise Broken(Promise.DEAF, f"{call.message} at {call.at:.2f}, {key} rests since {since:.2f}")

    def _check_documents(self, step: Step | None) -> None:
        database = self._servers.database
        written = set(database.written)
        database.written.clear()
        if "credentials" in written:
            self._credentials = {each["_id"]: each for each in database.documents("credentials")}
            for each in self._credentials.values():
                self._rates.note(each["_id"], self._now(), each["rate"])
        if "jobs" in written:
            self._see_jobs(database.documents("jobs"))
        if "batches" in written:
            self._see_batches({batch["_id"]: batch for batch in database.documents("batches")})
        if "messages" in written:
            self._see_entries([_codec.value(each) for each in database.documents("messages")], step)
        if written & {"messages", "tallies", "batches"} and written & {"messages", "tallies"}:
            self._check_tallies(database.documents("tallies"))
        if written & {"jobs", "messages", "batches"}:
            self._check_closed()
        if written & {"jobs", "batches", "credentials"}:
            self._note_due()

    def _see_jobs(self, jobs: Sequence[Document]) -> None:
        for job in jobs:
            key, before = _key(job), self._jobs.get(_key(job))
            if before is not None:
                old, new = JobStatus(before["status"]), JobStatus(job["status"])
                _check_move(key, old, new, MESSAGE_JOB_TRANSITIONS)
            if job["status"] == JobStatus.RUNNING:
                self._rests_since.pop(key, None)
            else:
                self._rests_since.setdefault(key, self._now())
            if job["status"] == JobStatus.STOPPED:
                self._stopped.add(key)
            self._jobs[key] = job

    def _see_batches(self, batches: dict[str, Document]) -> None:
        for name, batch in batches.items():
            before = self._batches.get(name)
            if before is not None and "range" in batch:
                old, new = BatchStatus(before["status"]), BatchStatus(batch["status"])
                _check_move(name, old, new, MESSAGE_TRANSITIONS)
                if old is BatchStatus.PLANNED and new is BatchStatus.QUEUED:
                    self._check_turn(batch)
        self._batches = batches

    def _check_turn(self, batch: Document) -> None:
        """In good weather, nothing is queued while an older job waits."""
        job = self._jobs[batch["job_id"]]
        if not self._weather.fair or self._credentials[job["credential_id"]]["order"] != SendOrder.AGE:
            return
        for key, due in self._due_since.items():
            other = self._jobs[key]
            older = other["created_at"] < job["created_at"] and other["credential_id"] == job["credential_id"]
            if older and self._now() - due > _FED_WITHIN_SECONDS:
                raise Broken(Promise.PASSED, f"{batch['_id']} is queued, and {key} is due since {due:.2f}")

    def _see_entries(self, entries: Sequence[Message], step: Step | None) -> None:
        for entry in entries:
            before = self._entries.get(entry.id)
            if entry == before:
                continue
            self._check_row(entry)
            self._check_change(before, entry)
            if step is not None and step.name == "messages.fold":
                self._check_news(before, entry)
                self._heard.add(entry.id)
            self._entries[entry.id] = entry

    def _check_row(self, entry: Message) -> None:
        job = self._job_of(entry.id)
        ordinal, row = map(int, entry.id.split(".")[1:])
        batch = self._batches.get(f"{_key(job)}/{ordinal:08d}") or self._find_batch(_key(job), ordinal)
        address = self._servers.people.address(_table(job), batch["range"]["after"] + 1 + row)
        if entry.to != address or entry.credential_id != job["credential_id"]:
            raise Broken(Promise.FOREIGN, entry)

    def _check_change(self, before: Message | None, after: Message) -> None:
        calls = self._calls[after.id]
        if before is not None and after.v <= before.v:
            raise Broken(Promise.UNTRUE, f"{before} -> {after}")
        if after.is_sending and (before is None or not before.is_sending or after.attempt != before.attempt):
            self._check_wanted(before, after)
        if before is not None and after.attempt < before.attempt and before.attempt in calls.attempts:
            raise Broken(Promise.UNTRUE, f"{after.id} was called, and is given back")
        if after.state in _TOOK and not (calls.last and calls.attempts):
            raise Broken(Promise.UNTRUE, f"{after.id} is {after.state} and was never called")
        if after.state is MessageState.SENT and not (calls.last and calls.last.may_be_taken):
            raise Broken(Promise.UNTRUE, f"{after.id} is sent, and the provider has not taken it: {calls.last}")
        if before is None or after.state is not MessageState.UNSENT:
            return
        is_called = after.attempt == before.attempt and after.repeated == before.repeated
        if is_called and (calls.last is None or not calls.last.certainly_not_taken):
            raise Broken(Promise.UNTRUE, f"{after.id} is unsent, and may have been taken: {calls.last}")

    def _check_news(self, before: Message | None, after: Message) -> None:
        if before is not None and after.state is before.state and after.ref and not before.ref:
            return  # an answer that comes late, behind a callback: it tells what the provider calls the message
        if before is None or RANKS[after.state] <= RANKS[before.state]:
            raise Broken(Promise.UNTRUE, f"a callback makes {before} {after}")

    def _check_wanted(self, before: Message | None, after: Message) -> None:
        job = self._job_of(after.id)
        batch = self._find_batch(_key(job), int(after.id.split(".")[1]))
        if batch["owner"] != after.owner:
            raise Broken(Promise.UNNOTED, f"{after.id} is written ahead by {after.owner}, owner is {batch['owner']}")
        wanted = {MessageState(state) for state in job.get("resend") or ()}
        if before is None:
            fits = not after.round or MessageState.UNSENT in wanted
        elif before.round == after.round:
            fits = before.state is MessageState.UNSENT
        else:
            fits = before.state in wanted
        if not fits or after.round != (job.get("round") or 0):
            raise Broken(Promise.UNWANTED, f"{before} -> {after}, wanted {sorted(wanted)} in round {job.get('round')}")

    def _check_tallies(self, folded: Sequence[Document]) -> None:
        counted: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
        for entry in self._entries.values():
            counted[prefix_of(entry.id)].append(difference(None, entry))
        told: defaultdict[str, list[dict[str, int]]] = defaultdict(list)
        for batch in self._batches.values():
            if "tally" in batch:
                incarnation = batch["job_id"].partition(".")[2]
                told[f"{incarnation}.{batch['ordinal']:08d}."].append(_flatten(batch["tally"]))
        for each in folded:
            told[each["_id"]].append(_flatten(each))
        for prefix in counted.keys() | told.keys():
            if (said := add_tallies(told[prefix])) != (are := add_tallies(counted[prefix])):
                raise Broken(Promise.TALLY, f"{prefix} says {said}, there are {are}")

    def _check_closed(self) -> None:
        for key, job in self._jobs.items():
            if job["open"]:
                continue
            if open_ones := [entry.id for entry in self._entries_of(job) if entry.is_sending]:
                raise Broken(Promise.CLOSED, f"{key} is {job['status']}, still sending are {open_ones}")
            left = [batch["_id"] for batch in self._batches.values() if batch["job_id"] == key and "range" in batch]
            if any(not self._batches[name]["settled"] for name in left):
                raise Broken(Promise.CLOSED, f"{key} is {job['status']}, and not all its batches are settled")

    def _note_due(self) -> None:
        """Since when each job has had a batch that could be queued."""
        now = self._servers.clock.now()
        for key, job in self._jobs.items():
            own = [batch for batch in self._batches.values() if batch["job_id"] == key and "range" in batch]
            runs = job["status"] == JobStatus.RUNNING and not self.is_shut(job["credential_id"])
            waiting = [batch for batch in own if batch["status"] == BatchStatus.PLANNED]
            due = any(batch.get("not_before") is None or batch["not_before"] <= now for batch in waiting)
            if runs and due:
                self._due_since.setdefault(key, self._now())
            else:
                self._due_since.pop(key, None)

    def _entries_of(self, job: Document) -> list[Message]:
        prefix = f"{job['incarnation']}."
        return [entry for entry in self._entries.values() if entry.id.startswith(prefix)]

    def _find_batch(self, key: str, ordinal: int) -> Document:
        for batch in self._batches.values():
            if batch["job_id"] == key and batch["ordinal"] == ordinal:
                return batch
        raise Broken(Promise.FOREIGN, f"{key} has no batch {ordinal}")

    def _job_of(self, message_id: str) -> Document:
        incarnation = message_id.partition(".")[0]
        for job in self._jobs.values():
            if job["incarnation"] == incarnation:
                return job
        raise Broken(Promise.FOREIGN, message_id)


def _check_move(what: str, old: Any, new: Any, moves: Any) -> None:
    if old is not new and new not in moves[old]:
        raise Broken(Promise.ILLEGAL, f"{what}: {old} -> {new}")


def _key(job: Document) -> str:
    return f"{job['_id']}.{job['incarnation']}"


def _table(job: Document) -> str:
    return f"{job['app_name']}_{job['table_kind']}"


def _flatten(tally: Document, path: str = "") -> Counter[str]:
    counts: Counter[str] = Counter()
    for name, value in tally.items():
        if isinstance(value, dict):
            counts.update(_flatten(value, f"{path}{name}."))
        elif name != "_id":
            counts[f"{path}{name}"] = value
    return counts
