"""The last release ignores what is traced: its processes do the work, and lose nothing but the trace."""

import asyncio
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from shared.domain.clock.callbacks import CallTarget
from shared.domain.clock.occurrences import once
from shared.domain.jobs.jobs import FinishJob, PlanJob, SendBatch, SendMail
from shared.domain.tasks import Task, encode
from tests.e2e.callees import OPEN, callee
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app, is_completed
from tests.tracing.collector import collect
from tests.tracing.test_processes import CALLERS, a_schedule, open_api, tracing
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.upgrade, pytest.mark.native]

TRACE = f"{CALLERS}@1790000000"
TASKS: list[Task] = [
    PlanJob("job", trace=TRACE),
    SendBatch("job", 3, 2, trace=TRACE),
    FinishJob("job", trace=TRACE),
    SendMail("job", "paused", 1, trace=TRACE),
    CallTarget("occurrence", "token", trace=TRACE),
]
READ = """
import sys
from shared.domain.clock.callbacks import CallTarget
from shared.domain.jobs.jobs import FinishJob, PlanJob, SendBatch, SendMail
from shared.domain.tasks import decode, encode
for line in sys.stdin.buffer:
    kind, _, body = line.partition(b" ")
    print(encode(decode(body, globals()[kind.decode()])).decode())
"""


async def test_the_release_reads_tasks_that_are_traced(release: Path) -> None:
    lines = b"\n".join(type(task).__name__.encode() + b" " + encode(task) for task in TASKS)
    program = [sys.executable, "-c", READ]
    shown = await asyncio.to_thread(
        subprocess.run, program, cwd=release, input=lines, capture_output=True, check=True, timeout=SECONDS
    )
    untraced = [encode(task).replace(f',"trace":"{TRACE}"'.encode(), b"") for task in TASKS]
    assert shown.stdout.splitlines() == untraced
    assert b"trace" not in shown.stdout


async def test_processes_of_the_release_do_what_is_traced(house: House, release: Path) -> None:
    await house.devices(1_500)
    async with collect() as collector, callee() as target:
        api = await open_api(house, **tracing(collector, 1.0), **OPEN)
        for service in ("scheduler", "worker"):
            await house.start(service, release, **OPEN)
        path = await push_later(house, api)
        await a_schedule(api, target.url, "traced", CALLERS)
        stored = await house.servers.store.jobs.view(path.rpartition("/")[2])
        assert stored is not None and stored.trace
        await until(lambda: is_completed(api, path), "the job to complete")
        await target.got(1)
    assert "traceparent" not in target.all[0].headers


async def push_later(house: House, api: Customer) -> str:
    """A job with a start, so that an occurrence is traced too; the path of the job."""
    app_id = await an_app(house, api)
    starts = int((datetime.now(UTC) + timedelta(seconds=1)).timestamp() * 1e9)
    ask = {"service": "apns", "startsAt": starts}
    status, job = await api.call("POST", f"/apps/{app_id}/jobs?template=welcome", ask)
    assert status == 201, job
    return f"/apps/{app_id}/jobs/{job['id']}"


async def test_what_is_not_traced_is_stored_without_the_field(house: House) -> None:
    now = await house.servers.time.now()
    await house.servers.store.occurrences.add([once("job/1/start", "g", now, accepted_at=now)])
    assert "trace" not in await first_document(house)


async def first_document(house: House) -> set[str]:
    found = await house.servers.store.occurrences._occurrences.find_one({})
    assert found is not None
    return set(found)
