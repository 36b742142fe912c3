"""Lumen's pushes: one that was held for a while, one around the globe, those that wait, those that are done."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange, PushTable
from shared.audience.rules.zones import starts
from shared.core.instants import from_ms, ns
from shared.jobs.rules.batches import Batch, BatchStatus, Receipt, Totals
from shared.jobs.rules.events import BY_ITSELF, PAUSE, PLAN, RESUME, SEND, Doer, Event, EventState
from shared.jobs.rules.groups import make_group, zone_jobs
from shared.jobs.rules.jobs import Job, JobStatus, Plan
from shared.store import Store
from tests.browser.lumen.ids import next_id

BATCH = 10_000
BEA = Doer("user", "bea@lumen.example")
MARIO = Doer("user", "mario@lumen.example")
_SECONDS_A_BATCH = 1.25
_ZONES = {
    "+1200": 21, "+1100": 8, "+1000": 47, "+0930": 6, "+0900": 88, "+0800": 64, "+0700": 39, "+0600": 12, "+0530": 71,
    "+0500": 18, "+0400": 14, "+0330": 9, "+0300": 52, "+0200": 81, "+0100": 132, "+0000": 64, "-0300": 94, "-0400": 17,
    "-0500": 121, "-0600": 58, "-0700": 22, "-0800": 49, "-1000": 4,
}  # fmt: skip
"""How many batches of devices each zone has."""


async def add_jobs(store: Store, app_id: str, now: datetime) -> tuple[str, str]:
    """Put them in: the ids of the job that runs, and of the push around the globe."""
    running = await _add_running(store, app_id, now)
    await _add_brief(store, app_id, now)
    group_id = await _add_group(store, app_id, now)
    waiting = [("weekend-offer", timedelta(hours=3)), ("card-expires", timedelta(hours=9))]
    await store.jobs.add_missing(
        [
            _job(app_id, name, now - timedelta(hours=2), status=JobStatus.SCHEDULED, starts_at=ns(now + ahead))
            for name, ahead in waiting
        ]
    )
    return running.id, group_id


def _job(app_id: str, template: str, at: datetime, **fields: Any) -> Job:
    standard: dict[str, Any] = {"app_name": "Lumen", "service": "apns", "created_by": BEA.name, "group_id": next_id()}
    times = {"created_at": ns(at), "updated_at": ns(at)}
    return Job(id=next_id(), app_id=app_id, template_names=(template,), **(standard | times | fields))


def _events(*told: tuple[str, EventState, str, datetime, Doer]) -> tuple[Event, ...]:
    return tuple(Event(stage, state, message, ns(at), by) for stage, state, message, at, by in told)


def _planned(batches: int) -> Plan:
    return Plan(source=PushTable(highest=batches * BATCH), end=batches)


async def _add_running(store: Store, app_id: str, now: datetime) -> Job:
    """One of 2.4 million devices, three quarters done, that somebody held for a minute."""
    began, held, resumed = now - timedelta(seconds=290), now - timedelta(seconds=170), now - timedelta(seconds=110)
    job = _job(
        app_id, "spring-launch", began - timedelta(seconds=4), plan=_planned(240),
        filters={"locale": "en,pt,es"}, feedbacks={"delivered": 1_644_310, "bad device token": 9_127},
        events=_events(
            (PLAN, EventState.SUCCESS, "finished", began, BY_ITSELF),
            (SEND, EventState.RUNNING, "starting", began, BY_ITSELF),
            (PAUSE, EventState.SUCCESS, "finished", held, MARIO),
            (RESUME, EventState.SUCCESS, "finished", resumed, MARIO),
        ),
    )  # fmt: skip
    await store.closed_jobs.add([job])
    steps = [(began, held, 92), (resumed, now - timedelta(seconds=1), 86)]
    settled = [at for begin, end, count in steps for at in _spread(begin, end, count)]
    await _add_batches(store, job, settled, 240)
    return job


async def _add_brief(store: Store, app_id: str, now: datetime) -> None:
    job = _job(app_id, "price-drop", now - timedelta(seconds=50), service="gcm", plan=_planned(60))
    await store.jobs.add(job)
    await _add_batches(store, job, _spread(now - timedelta(seconds=48), now - timedelta(seconds=1), 22), 60)
    totals = Totals(batches=31, settled=31, planned=310_000, sent=308_450, failed=310, skipped=1_240)
    done = [("order-shipped", 40), ("password-changed", 95), ("order-shipped", 160)]
    await store.closed_jobs.add(
        [
            _job(
                app_id, name, now - timedelta(minutes=ago), status=JobStatus.COMPLETED, open=False, totals=totals,
                plan=_planned(31), completed_at=ns(now - timedelta(minutes=ago - 1)),
            )
            for name, ago in done
        ]
    )  # fmt: skip


async def _add_group(store: Store, app_id: str, now: datetime) -> str:
    """A push that began in the east half a day ago: Greenwich's zone runs now, the Americas wait."""
    at = ns(now.replace(minute=0, second=0, microsecond=0))
    made = now - timedelta(hours=20)
    asked = _job(app_id, "good-evening", made, localized=True, starts_at=at, status=JobStatus.SCHEDULED)
    group = make_group(asked, [(zone, starts(at, zone, published_sign=False)) for zone in _ZONES])
    await store.groups.add(group)
    await store.groups.mark_complete(group.id)
    begun = [job for job in zone_jobs(group) if job.starts <= now]
    ahead = [job for job in zone_jobs(group) if job.starts > now]
    await store.jobs.add_missing(ahead)
    await store.closed_jobs.add([_complete(job) for job in begun[:-1]])
    runs = replace(begun[-1], status=JobStatus.RUNNING, plan=_planned(_ZONES[begun[-1].zone]))
    await store.jobs.add(runs)
    settled = _spread(now - timedelta(seconds=40), now - timedelta(seconds=1), runs.plan.end or 0)
    await _add_batches(store, runs, settled[: len(settled) * 5 // 8], len(settled))
    return group.id


def _complete(job: Job) -> Job:
    batches = _ZONES[job.zone]
    devices = batches * BATCH - int(job.zone) % 1_000
    skipped, failed = devices // 240, devices // 3_100
    sums = {"planned": devices, "sent": devices - skipped - failed, "skipped": skipped, "failed": failed}
    totals = Totals(batches=batches, settled=batches, **sums)
    ended = ns(job.starts + timedelta(seconds=batches * _SECONDS_A_BATCH))
    return replace(
        job, status=JobStatus.COMPLETED, open=False, totals=totals, completed_at=ended, plan=_planned(batches)
    )


def _spread(begin: datetime, end: datetime, count: int) -> list[datetime]:
    """So many moments between the two, as batches end: never quite evenly."""
    chance = random.Random(count)
    pauses = [chance.uniform(0.6, 1.4) for _ in range(count)]
    whole = sum(pauses)
    return [begin + (end - begin) * (sum(pauses[: n + 1]) / whole) for n in range(count)]


async def _add_batches(store: Store, job: Job, settled: Sequence[datetime], count: int) -> None:
    """The batches of a job's plan, of which those are settled that have a moment."""
    done = [
        _batch(job, n, BatchStatus.SENT, receipt=_receipt(n), attempts=1, taken_at=_taken(at), changed_at=at)
        for n, at in enumerate(settled)
    ]
    left = [_batch(job, n, BatchStatus.PLANNED) for n in range(len(settled), count)]
    await store.batches.add_page([*done, *left])
    await store.batches.add_end(job.key, count)


def _batch(job: Job, ordinal: int, status: BatchStatus, **fields: Any) -> Batch:
    span = KeyRange(ordinal * BATCH, (ordinal + 1) * BATCH)
    return Batch(job_id=job.key, ordinal=ordinal, range=span, size=BATCH, status=status, turn=1, **fields)


def _taken(at: datetime) -> datetime:
    return from_ms(int(at.timestamp() * 1_000)) - timedelta(seconds=2)


def _receipt(ordinal: int) -> Receipt:
    skipped, failed = 30 + ordinal % 17, ordinal % 4
    sent = BATCH - skipped - failed
    return Receipt(
        sent=sent, failed=failed, skipped=skipped, reasons={"no-token": skipped, "too-large": failed},
        locales={"en": sent - 4_400, "pt": 2_600, "es": 1_800},
    )  # fmt: skip
