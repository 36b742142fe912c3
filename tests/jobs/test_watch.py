"""Watching jobs: what is told is what a sum over all batches tells, whatever happens to these."""

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange, PushTable
from shared.jobs import watch
from shared.jobs.rules.batches import Batch, Receipt, Totals
from shared.jobs.rules.jobs import Job, JobStatus, Plan
from shared.jobs.rules.progress import SettledAt, rate_chart
from shared.jobs.store_batches import receipt_of
from shared.jobs.watch import JobWatch
from shared.store import Store
from shared.time import DatabaseTime
from tests.jobs.made import a_job

pytestmark = pytest.mark.native

EVERYBODY = PushTable(highest=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OVERLAP_MS = 5_000

receipts = st.builds(
    Receipt,
    sent=st.integers(0, 9),
    failed=st.integers(0, 9),
    reasons=st.dictionaries(st.sampled_from(["a.b", "$c"]), st.integers(1, 9)),
    locales=st.dictionaries(st.sampled_from(["en", "pt"]), st.integers(1, 9)),
)
later = st.sampled_from([0, 1, 2_000])
before = st.sampled_from([0, 1, OVERLAP_MS])
changes = st.tuples(st.just("change"), st.integers(0, 5), st.booleans(), receipts, later, before)
adds = st.tuples(st.just("add"), st.integers(1, 3))
steps = st.one_of(
    changes, changes, adds, st.just(("end",)), st.just(("look",)), st.tuples(st.just("look amid"), changes)
)


class Scene:
    """A job and what happens to its batches. Each change is visible at once, and tells a time that may lie up to five
    seconds before the latest that was told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.job = a_job(incarnation="0123456789abcdef", plan=Plan(source=EVERYBODY))
        self._batches = store._database["batches"]
        self._count = 0
        self._latest = NOON

    async def add(self, count: int) -> None:
        if self.job.plan.end is not None:
            return
        numbers = range(self._count, self._count + count)
        self._count += count
        assert await self.store.batches.add_page(
            [Batch(job_id=self.job.key, ordinal=n, range=KeyRange(n, n + 1), size=10) for n in numbers]
        )

    async def end(self) -> None:
        if self.job.plan.end is None:
            assert await self.store.batches.add_end(self.job.key, self._count)
            self.job = replace(self.job, plan=replace(self.job.plan, end=self._count))

    async def change(self, ordinal: int, settled: bool, receipt: Receipt, later: int, before: int) -> None:
        """Settle a batch, or set it back."""
        if ordinal >= self._count:
            return  # the plan's end stands there, or nothing
        self._latest += timedelta(milliseconds=later)
        at = self._latest - timedelta(milliseconds=before)
        told = {"sent": receipt.sent, "failed": receipt.failed, "skipped": 0, "held_out": 0, "unknown": 0}
        named = {"reasons": list(receipt.reasons.items()), "locales": list(receipt.locales.items())}
        fields = {
            "status": "sent" if settled else "queued", "settled": settled, "changed_at": at, "size": receipt.sent + 1,
            "receipt": told | (named if settled else {"reasons": [], "locales": []}),
        }  # fmt: skip
        await self._batches.update_one({"job_id": self.job.key, "ordinal": ordinal}, {"$set": fields})

    async def check(self, watching: JobWatch) -> None:
        """What is told is the sum over all batches as they stand."""
        sums = self.store.batch_sums
        outcomes = [each async for each in sums.outcomes(self.job.key)]
        summed = sum((each.receipt for each in outcomes), Receipt())
        measured = (await watching.measure([self.job]))[self.job.id]
        totals, progress = measured.totals, measured.progress
        assert totals == (await sums.totals([self.job.key])).get(self.job.key, Totals())
        assert progress.summed == Receipt(reasons=summed.reasons, locales=summed.locales)
        changed = await self._batches.find({"job_id": self.job.key, "changed_at": {"$ne": None}}).to_list()
        done = [
            SettledAt(recipients, each.get("taken_at"), each["changed_at"])
            for each in changed
            if (recipients := receipt_of(each["receipt"]).recipients) or each["settled"]
        ]
        assert await watching.read_chart(self.job) == rate_chart(done)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, max_size=25), st.booleans())
async def test_what_is_told_is_the_sum_over_all_batches_whatever_happens(
    store: Store, monkeypatch: pytest.MonkeyPatch, sequence: list[Any], removed: bool
) -> None:
    scene, watching = Scene(store), JobWatch(store, DatabaseTime(store))
    await scene.add(3)
    with monkeypatch.context() as patched:
        patched.setattr(watch, "FRESH_SECONDS", 0.0)
        for step, *rest in sequence:
            match step:
                case "look":
                    await scene.check(watching)
                case "look amid":
                    await look_amid(scene, watching, rest[0][1:])
                case _:
                    await getattr(scene, step)(*rest)
        await scene.check(watching)
        if removed:
            await store.batches.remove_of([scene.job.key])
            await scene.check(watching)


async def look_amid(scene: Scene, watching: JobWatch, change: tuple[Any, ...]) -> None:
    """Look, while a batch changes between two answers of the server. The next look must tell it."""
    sums = scene.store.batch_sums
    left = [change]

    def meddled(original: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        async def read(*asked: Any) -> AsyncIterator[Any]:
            async for found in original(*asked):
                yield found
                while left:
                    await scene.change(*left.pop())

        return read

    with pytest.MonkeyPatch.context() as patched:
        for name in ("read_changed", "read_from"):
            patched.setattr(sums, name, meddled(getattr(sums, name)))
        await watching.measure([scene.job])


async def watched(store: Store, **fields: Any) -> Scene:
    scene = Scene(store)
    scene.job = replace(scene.job, **fields)
    await scene.add(3)
    await scene.end()
    await scene.change(0, True, Receipt(sent=5), 0, 0)
    return scene


def count_readings(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs whose batches are read from the first on."""
    readings: list[str] = []
    original = store.batch_sums.read_from

    def read_from(job_id: str, ordinal: int) -> AsyncIterator[Any]:
        readings.append(job_id)
        return original(job_id, ordinal)

    monkeypatch.setattr(store.batch_sums, "read_from", read_from)
    return readings


async def test_a_batch_that_shows_late_is_told(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FRESH_SECONDS", 0.0)
    scene, watching = await watched(store), JobWatch(store, DatabaseTime(store))
    await scene.check(watching)
    await scene.change(1, True, Receipt(sent=7), 0, OVERLAP_MS)
    await scene.check(watching)


async def test_batches_that_were_removed_are_told_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FRESH_SECONDS", 0.0)
    scene, watching = await watched(store), JobWatch(store, DatabaseTime(store))
    await scene.check(watching)
    await store.batches.remove_of([scene.job.key])
    await scene.check(watching)


async def test_too_many_jobs_are_forgotten_and_read_anew(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "MOST_BATCHES", 2_500)  # with a thousand for each job
    readings, watching = count_readings(store, monkeypatch), JobWatch(store, DatabaseTime(store))
    scenes = [await watched(store) for _ in range(3)]
    for scene in (*scenes, scenes[2], scenes[0]):
        await scene.check(watching)
    first, second, third = (scene.job.key for scene in scenes)
    assert readings == [first, second, third, first]


async def test_the_sums_of_a_closed_job_are_what_was_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    readings, watching = count_readings(store, monkeypatch), JobWatch(store, DatabaseTime(store))
    scene = await watched(store)
    written = Totals(batches=3, settled=3, sent=7)
    closed = replace(scene.job, status=JobStatus.COMPLETED, open=False, totals=written, locales={"en": 7})
    measured = (await watching.measure([closed]))[closed.id]
    progress = measured.progress
    assert (measured.totals, progress.summed.locales, progress.rate) == (written, {"en": 7}, 0.0)
    assert readings == []


async def test_lists_read_nothing_of_jobs_that_are_not_planned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    readings, watching = count_readings(store, monkeypatch), JobWatch(store, DatabaseTime(store))
    scene, waiting = await watched(store), a_job()
    told = await watching.measure([scene.job, waiting])
    assert (told[scene.job.id].totals.sent, told[waiting.id].totals) == (5, Totals())
    assert readings == [scene.job.key]


async def test_users_that_planning_found_unknown_are_told(store: Store) -> None:
    scene = await watched(store)
    job: Job = replace(scene.job, plan=replace(scene.job.plan, unknown=4))
    watching = JobWatch(store, DatabaseTime(store))
    assert (await watching.measure([job]))[job.id].totals.unknown == 4


@pytest.mark.parametrize(("status", "goes"), [("running", True), ("paused", False), ("circuitbreak", False)])
async def test_a_job_that_is_held_has_no_rate(store: Store, status: str, goes: bool) -> None:
    scene, time = Scene(store), Stepped(store)
    await scene.add(3)
    await scene.end()
    await scene.change(0, True, Receipt(sent=5), 0, 0)
    job = replace(scene.job, status=JobStatus(status))
    progress = (await JobWatch(store, time).measure([job]))[job.id].progress
    assert (bool(progress.rate), progress.ends_at is not None) == (goes, goes)


async def test_the_rate_after_a_pause_is_measured_from_its_end_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FRESH_SECONDS", 0.0)
    scene, time = Scene(store), Stepped(store)
    watching, job = JobWatch(store, time), replace(scene.job, credential_id="c")
    rates = []
    await scene.add(1)
    for seconds, status, sent in ((0, "running", 10), (1, "paused", 10), (20, "paused", 10), (25, "running", 60)):
        time.at = NOON + timedelta(seconds=seconds)
        await scene.change(0, False, Receipt(sent=sent), 0, 0)
        job = replace(job, status=JobStatus(status))
        rates.append((await watching.measure([job]))[job.id].progress.rate)
    assert rates[-1] == 10


class Stepped(DatabaseTime):
    """A database whose clock is set."""

    at = NOON

    async def now(self) -> datetime:
        return self.at


async def test_what_changes_under_a_clock_that_was_set_back_is_seen(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FRESH_SECONDS", 0.0)
    scene, time = Scene(store), Stepped(store)
    watching = JobWatch(store, time)
    await scene.add(3)
    await scene.change(1, True, Receipt(sent=3), 0, 0)
    await scene.check(watching)
    time.at -= timedelta(seconds=20)
    await scene.change(0, True, Receipt(sent=5), 0, 19_000)
    await scene.check(watching)
