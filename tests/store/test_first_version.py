"""Documents and tasks that the first version wrote (`first_version.json`, as its own code stored them) are read."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import json_util

from shared.domain.audience.audiences import KeyRange, PushTable
from shared.domain.clock.callbacks import CallTarget, HttpCallback, RabbitCallback
from shared.domain.clock.occurrences import OccurrenceKind
from shared.domain.clock.recurrence import Cron
from shared.domain.jobs.batches import BatchStatus, Receipt
from shared.domain.jobs.events import DueMail
from shared.domain.jobs.jobs import FinishJob, JobStage, JobStatus, PlanJob, SendBatch, SendMail, job_owner
from shared.domain.tasks import Task, decode
from shared.store import Store
from shared.store.jobs.batches import PlanEnd

WRITTEN = json_util.loads(Path(__file__).with_name("first_version.json").read_text("utf-8"))
APP, USER, TOKEN, TEMPLATE, JOB, LATER, GROUP = (
    f"0190b5a2-0000-7000-8000-00000000000{n}" for n in (1, 2, 3, 4, 5, 7, 9)
)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
async def written(store: Store) -> Store:
    for name, documents in WRITTEN["documents"].items():
        await store._database[name].delete_many({})
        await store._database[name].insert_many(documents)
    return store


@pytest.mark.native
async def test_accounts(written: Store) -> None:
    app = await written.apps.get(APP)
    assert app is not None
    assert (app.name, app.bundle_id, app.deleting) == ("game", "com.example.game", False)
    users = await written.users.with_emails(["ana@example.com"])
    assert users["ana@example.com"].is_admin
    tokens = await written.tokens.with_digests(["d" * 64])
    assert tokens["d" * 64].allowed_apps == (APP,)


@pytest.mark.native
async def test_a_job_that_runs(written: Store) -> None:
    job = await written.jobs.get(JOB)
    assert job is not None
    assert (job.key, job.status, job.service, job.filters) == (JOB, JobStatus.RUNNING, "apns", {"locale": "en"})
    assert (job.plan.source, job.plan.end, job.plan.templates[0].name) == (PushTable(99), 3, "like")
    assert job.mails == (DueMail("created", 10),)
    standing = await written.jobs.get_standing(JOB)
    assert standing == job.standing
    first, second, third = [await written.batches.get(JOB, n) for n in range(3)]
    assert first is not None
    assert second is not None
    assert third is not None
    assert first.receipt == Receipt(sent=9, failed=1, reasons={"no-token": 1}, locales={"en": 9})
    assert (first.status, second.status, third.status) == (BatchStatus.SENT, BatchStatus.SENDING, BatchStatus.PLANNED)
    assert (second.owner, second.turn, second.range) == ("carillon-lane", 1, KeyRange(10, 20))
    assert await written.batches.last(JOB) == PlanEnd(3)
    settled = await written.batches.settle(second, to=BatchStatus.SENT, receipt=Receipt(sent=10))
    assert settled is not None
    assert (await written.batch_sums.totals([JOB]))[JOB].sent == 19


@pytest.mark.native
async def test_a_job_that_waits_and_a_group(written: Store) -> None:
    later = await written.jobs.get(LATER)
    assert later is not None
    assert (later.status, later.csv_path, later.key) == (JobStatus.SCHEDULED, "bucket/users.csv", LATER)
    [start] = await written.occurrences.find_upcoming(job_owner(LATER, JobStage.START), 5)
    assert start.due == NOON
    group = await written.groups.get(GROUP)
    assert group is not None
    assert (group.job.id, group.made) == (LATER, False)
    assert await written.templates.get(TEMPLATE) is not None


@pytest.mark.native
async def test_schedules_and_their_occurrences(written: Store) -> None:
    listed, series = await written.schedules.get("token:t/list"), await written.schedules.get("token:t/series")
    assert listed is not None
    assert series is not None
    assert isinstance(listed.definition.callback, HttpCallback)
    assert listed.definition.instants == (NOON, NOON + timedelta(hours=1))
    assert series.definition.callback == RabbitCallback(queue="invitations", payload="1")
    assert series.definition.recurrence == Cron("0 9 * * *", "Europe/Berlin")
    [second] = await written.occurrences.find_upcoming(listed.owner, 5)  # the first had passed when it was accepted
    assert (second.due, second.kind) == (NOON + timedelta(hours=1), OccurrenceKind.ONCE)
    assert [each.generation for each in await written.occurrences.find_upcoming(series.owner, 5)] == ["g1"]


@pytest.mark.parametrize(
    ("kind", "task"),
    [
        (PlanJob, PlanJob(JOB, attempt=2, faults=1)),
        (SendBatch, SendBatch(JOB, 1, 1)),
        (FinishJob, FinishJob(JOB)),
        (SendMail, SendMail(JOB, "created", 10)),
        (CallTarget, CallTarget("o" * 32, "token")),
    ],
)
def test_tasks(kind: type[Task], task: Task) -> None:
    tasks: dict[str, Any] = {each["type"]: each for each in WRITTEN["tasks"]}
    tag = kind.__struct_config__.tag
    assert decode(json.dumps(tasks[str(tag)]).encode(), kind) == task
