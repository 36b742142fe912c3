"""What a deployment holds that has run for long: jobs, schedules, dead letters and audit records in great number. The
store puts them in as it does for the product, but without HTTP."""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from services.api.http.errors import fresh_id
from shared.audience.rules.audiences import KeyRange, PushTable
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from shared.clock.store_occurrences import fresh_token
from shared.console import store_audit as audit
from shared.console.rules.audit import ActedOn, Actor, ActOutcome, AuditRecord
from shared.core.instants import ns
from shared.jobs.rules.batches import Batch, BatchStatus, Receipt, Totals
from shared.jobs.rules.jobs import Job, JobStatus, Plan
from tests.bench.schedules import NAMESPACE, database, far_ahead, fill, key
from tests.e2e.house import House
from tests.stack.places import say

RUNNING = 20
BATCHES = 20_000
BATCH = 5_000
PREFIX = "console-"
DEAD_KEY = "dead"
OTHERS = "token:others"
ERRORS = ("404 Not Found", "500 Internal Server Error", "ConnectError: connection refused")
_ACTS = ("job.create", "job.pause", "job.resume", "job.stop", "template.create")
_CHUNK = 2_000


class Amounts(Struct, frozen=True):
    """How many there are: of jobs, dead letters and audit records as many `things`, and so many schedules."""

    things: int
    schedules: int


async def fill_all(house: House, amounts: Amounts) -> None:
    """Put everything in, over the last year."""
    now = await house.servers.time.now()
    await fill(house, amounts.schedules, far_ahead(now), prefix=PREFIX)
    kinds: dict[str, Callable[[range], Awaitable[None]]] = {
        "jobs": lambda numbers: _add_jobs(house, numbers, _steps(now, amounts.things)),
        "dead letters": lambda numbers: _add_letters(house, numbers, _steps(now, amounts.things)),
        "audit records": lambda numbers: _add_records(house, numbers, _steps(now, amounts.things)),
    }
    for what, add in kinds.items():
        for start in range(0, amounts.things, _CHUNK):
            await add(range(start, min(start + _CHUNK, amounts.things)))
        say(f"{amounts.things:,} {what} are in")


async def add_running(house: House) -> list[Job]:
    """The jobs that run; the last one has `BATCHES` batches, and all but the last of these are settled."""
    now = await house.servers.time.now()
    jobs = [_job(house, now, status=JobStatus.RUNNING, plan=_planned(BATCHES)) for _ in range(RUNNING)]
    await house.servers.store.jobs.add_missing(jobs)
    for job in jobs[:-1]:
        await _add_batches(house, job, now, BATCHES // 100)
    await _add_batches(house, jobs[-1], now, BATCHES)
    return jobs


async def settle(house: House, job: Job, ordinal: int) -> None:
    """Settle a batch that is queued, as a worker does."""
    batches = house.servers.store.batches
    queued = await batches.get(job.key, ordinal)
    assert queued is not None
    taken = await batches.take(queued, owner="bench")
    assert taken is not None
    await batches.settle(taken, to=BatchStatus.SENT, receipt=_receipt())


async def add_letters_to_retry(house: House, count: int) -> None:
    """Dead letters of schedules of our own that exist, each with its own moment of death."""
    now = await house.servers.time.now()
    letters = [_letter(NAMESPACE, key(PREFIX, n % 1_000), n, now - timedelta(milliseconds=n)) for n in range(count)]
    await _in_chunks(letters, house.servers.store.dead_letters.add)


async def _in_chunks(things: Sequence[Any], add: Callable[[Sequence[Any]], Awaitable[Any]]) -> None:
    for start in range(0, len(things), _CHUNK):
        await add(things[start : start + _CHUNK])
        await asyncio.sleep(0)


def _steps(now: datetime, count: int) -> Callable[[int], datetime]:
    """Moments over the last year: later numbers are later."""
    step = timedelta(days=365) / count
    return lambda n: now - (count - n) * step


async def _add_jobs(house: House, numbers: range, at: Callable[[int], datetime]) -> None:
    totals = Totals(batches=10, settled=10, planned=50_000, sent=50_000)
    await house.servers.store.closed_jobs.add(
        [
            _job(house, at(n), status=JobStatus.COMPLETED, open=False, totals=totals, completed_at=ns(at(n)))
            for n in numbers
        ]
    )


def _job(house: House, at: datetime, **fields: Any) -> Job:
    chance = random.Random(ns(at))
    context = {"who": "Ana", "text": "x" * chance.randint(10, 500)}
    job = house.job(context=context, locales={"en": 30_000}, **fields)
    return replace(job, id=fresh_id(ns(at)), created_at=ns(at))


def _planned(batches: int) -> Plan:
    return Plan(source=PushTable(highest=batches * BATCH), end=batches)


async def _add_batches(house: House, job: Job, now: datetime, count: int) -> None:
    settled = [
        Batch(
            job_id=job.key, ordinal=n, range=KeyRange(n * BATCH, (n + 1) * BATCH), size=BATCH, turn=1, attempts=1,
            status=BatchStatus.SENT, receipt=_receipt(), taken_at=now - timedelta(seconds=(count - n) / 10 + 1),
            changed_at=now - timedelta(seconds=(count - n) / 10),
        )
        for n in range(count - 100)
    ]  # fmt: skip
    left = [
        Batch(
            job_id=job.key, ordinal=n, range=KeyRange(n * BATCH, (n + 1) * BATCH), size=BATCH, turn=1,
            status=BatchStatus.QUEUED, changed_at=now,
        )
        for n in range(count - 100, count)
    ]  # fmt: skip
    await _in_chunks([*settled, *left], house.servers.store.batches.add_page)
    await house.servers.store.batches.add_end(job.key, count)


def _receipt() -> Receipt:
    return Receipt(
        sent=BATCH - 30,
        failed=10,
        skipped=20,
        reasons={"no-token": 20, "too-large": 10},
        locales={"en": 3_000, "pt": 1_500, "fr": 470},
    )


async def _add_letters(house: House, numbers: range, at: Callable[[int], datetime]) -> None:
    letters = [_letter(OTHERS, f"{DEAD_KEY}-{n % 1_000}", n, at(n)) for n in numbers]
    await house.servers.store.dead_letters.add(letters)


def _letter(namespace: str, its_key: str, number: int, died_at: datetime) -> DeadLetter:
    return DeadLetter(
        id=f"{namespace}-{number}",
        namespace=namespace,
        key=its_key,
        schedule_id=schedule_id(namespace, its_key),
        generation="bench",
        due=died_at - timedelta(hours=1),
        died_at=died_at,
        attempts=10,
        error=ERRORS[number % len(ERRORS)],
        death=fresh_token(),
    )


async def _add_records(house: House, numbers: range, at: Callable[[int], datetime]) -> None:
    records = [_record(house, n, at(n)) for n in numbers]
    documents = [audit._codec.document(record) for record in records]
    await database(house)["audit"].insert_many(documents, ordered=False)


def _record(house: House, number: int, at: datetime) -> AuditRecord:
    who = f"user:{number % 1_000}@example.com"
    return AuditRecord(
        id=fresh_id(ns(at)),
        at=at,
        act=_ACTS[number % len(_ACTS)],
        who=Actor(namespace=who, name=who, way="token", address="192.0.2.1"),
        on=ActedOn(kind="job", id=str(uuid.uuid4()), app_id=house.app_id),
        via="carillon/0.2.0",
        reason="because",
        outcome=ActOutcome.DONE,
        status=200,
    )
