"""`carillon up` as a real process on a folder: it does the whole of Carillon, and survives what may happen to it.

What went out is read from the stream's file when no process uses it any more.
"""

import asyncio
import html
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest

from services.commands.seed import TEMPLATE, Customer, seed
from services.embedded import processes
from services.embedded.instance import FIRST_ADMIN, Instance, find_running
from shared.core.errors import Unavailable
from shared.drivers.kafka.local import LocalStream
from shared.drivers.postgres import devices
from shared.push.rules.records import APNS
from shared.runtime.settings import Settings
from tests.e2e.house import Process
from tests.tiers import and_rarely
from tests.waiting import SECONDS, until

pytestmark = pytest.mark.e2e

TOPIC = "push-demo_apns-massive"


class Upper:
    """Starts `carillon up` on one folder, again and again."""

    def __init__(self, folder: Path, spawned: list[Process]) -> None:
        self.folder = folder
        self.spawned = spawned

    async def start(self, *, fault: str = "") -> tuple[Process, Instance]:
        """Returns when it is ready."""
        process = await self.spawn("up", "--data-dir", str(self.folder), fault=fault)
        await process.ready()
        house = find_running(self.folder)
        assert house is not None
        return process, house

    async def spawn(self, *words: str, fault: str = "") -> Process:
        number = len(self.spawned)
        log, faults = self.folder.with_name(f"up-{number}.log"), self.folder.with_name(f"up-{number}.faults")
        process = await _spawned(words, log, faults, fault)
        self.spawned.append(process)
        return process

    async def sent(self, job_id: str) -> Counter[str]:
        """How many records of the job each device has, once no process runs on the folder."""
        assert find_running(self.folder) is None
        stream = LocalStream(self.folder / "stream.db")
        tokens: Counter[str] = Counter()
        async with stream.reader(TOPIC, group="oracle") as reader:
            while chunks := await reader.read(0):
                records = [json.loads(value) for chunk in chunks for value in chunk.values if value]
                tokens.update(each["DeviceToken"] for each in records if each["metadata"]["jobId"] == job_id)
        await stream.close()
        return tokens


async def _spawned(words: tuple[str, ...], log: Path, faults: Path, fault: str) -> Process:
    environment = {
        "CARILLON_API_PORT": "0",
        "CARILLON_HEALTH_PORT": "0",
        "CARILLON_LOGS_FORMAT": "json",
        "CARILLON_WORKER_BATCH_SIZE": "1000",
        "CARILLON_WORKER_PAGE_BATCHES": "8",
        "CARILLON_FEEDBACK_FLUSH_SECONDS": "0.5",
        # Whoever starts again takes its work up at once, and does not wait for upkeep to miss it.
        "CARILLON_SCHEDULER_STALE_SECONDS": "3600",
        "CARILLON_SCHEDULER_MARGIN_SECONDS": "3600",
        "CARILLON_FAULT": fault,
        "CARILLON_FAULT_FILE": str(faults),
    }
    with log.open("wb") as output:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services", *words, env=os.environ | environment, stdout=output, stderr=output
        )
    return Process(child, log, faults)


@asynccontextmanager
async def upper_at(folder: Path) -> AsyncIterator[Upper]:
    """Who starts it on this folder, and ends all that is left of it."""
    upper = Upper(folder, [])
    try:
        yield upper
    finally:
        for process in upper.spawned:
            await process.end()
        # A server whose parent was killed ends on its own, but not before the test does.
        for name in ("mongodb", "postgresql"):
            if mark := processes.read_mark(upper.folder / f"{name}.mark"):
                processes.end(mark, grace_seconds=10, first=signal.SIGINT)


@pytest.fixture
async def upper(tmp_path: Path) -> AsyncIterator[Upper]:
    async with upper_at(tmp_path / "data") as upper:
        yield upper


def customer_of(house: Instance) -> Customer:
    return Customer(house.api, {"x-forwarded-email": house.admin})


async def job_to(house: Instance, count: int, *, answered: bool = True) -> tuple[str, str]:
    """Seed and post: the ids of the app and of a job to everybody. Unless `answered`, a kill may come first."""
    async with customer_of(house) as customer:
        seeded = await seed(customer, house.audience, app="demo", service=APNS, count=count)
        job_id = str(uuid.uuid4())
        try:
            await customer.start(seeded.app_id, TEMPLATE, {"id": job_id, "service": "apns", "context": {"name": "Ana"}})
        except Unavailable:
            assert not answered
        return seeded.app_id, job_id


async def completed(house: Instance, app_id: str, job_id: str) -> dict[str, Any]:
    """The job, as soon as the API says that it is completed."""
    async with customer_of(house) as customer:

        async def is_completed() -> bool:
            return bool((await customer.job(app_id, job_id))["completedAt"])

        await until(is_completed, "the job to be completed")
        return await customer.job(app_id, job_id)


async def planned(house: Instance, app_id: str, job_id: str, *, devices: int) -> None:
    async with customer_of(house) as customer:

        async def is_planned() -> bool:
            return bool((await customer.job(app_id, job_id))["totalTokens"] == devices)

        await until(is_planned, "the job to be planned")


def every_lane(action: str) -> str:
    """The fault that meets each lane once it has taken its first batch."""
    lanes = Settings().worker.lanes
    return ",".join(f"send.after_take@{nth}={action}" for nth in range(1, lanes + 1))


async def ended(process: Process) -> None:
    process.send(signal.SIGTERM)
    assert await process.gone() == 0, process.log


def everybody(count: int) -> dict[str, int]:
    return {devices.token(number): 1 for number in range(1, count + 1)}


@pytest.mark.proof
async def test_a_job_over_http_gives_every_device_one_record(upper: Upper) -> None:
    process, house = await upper.start()
    assert "Carillon is up." in process.log
    assert house.api in process.log
    assert house.admin == FIRST_ADMIN
    async with httpx.AsyncClient(trust_env=False, timeout=SECONDS) as http:
        assert (await http.get(f"{house.api}/docs")).status_code == 200
        await until(lambda: _is_ready(http, house), "to be ready")

    app_id, job_id = await job_to(house, 3_000)
    job = await completed(house, app_id, job_id)
    assert (job["sent"], job["failed"], job["skipped"], job["totalTokens"], job["totalBatches"]) == (
        3_000,
        0,
        0,
        3_000,
        3,
    )
    assert job["locales"] == {"en": 2_000, "pt": 1_000}

    await ended(process)
    assert not (upper.folder / "running.json").exists()
    assert await upper.sent(job_id) == everybody(3_000)


async def _is_ready(http: httpx.AsyncClient, house: Instance) -> bool:
    return (await http.get(f"{house.health}/readyz")).status_code == 200


async def test_the_seed_command_fills_the_running_one_and_can_be_repeated(upper: Upper) -> None:
    _, house = await upper.start()
    said = []
    for _ in range(2):
        seeding = await upper.spawn("seed", "--data-dir", str(upper.folder), "--devices", "1500")
        assert await seeding.gone() == 0, seeding.log
        said.append(seeding.log)
    assert said[0] == said[1]
    assert "1,500 devices in demo_apns" in said[0]
    async with customer_of(house) as customer:
        (app,) = await customer.list_all("/apps")
    command, _, curl = said[0].partition("Or by curl. ")
    assert "jobs create --app demo --template welcome --set name=Ana --watch\n" in command
    assert f"export CARILLON_EMBEDDED_DATA_DIR={upper.folder}; " in command
    assert "curl -s -H 'Idempotency-Key: first-job'" in curl
    assert f'"{house.api}/apps/{app["id"]}/jobs?template={TEMPLATE}"' in said[0]


async def test_its_callbacks_reach_this_machine_and_its_secrets_and_links_are_its_own(upper: Upper) -> None:
    _, house = await upper.start()
    url = "http://127.0.0.1:9/hook"
    async with customer_of(house) as customer:
        made = await customer.call(
            "PUT", "/schedules/ping", json={"every": 86_400, "callback": {"type": "http", "data": {"url": url}}}
        )
        secret = await customer.call("POST", "/signing-secrets", json={})
        settings: list[dict[str, Any]] = await customer.call("GET", "/settings")
    chosen = {each["name"]: each["value"] for each in settings}
    assert made["callback"]["data"]["url"] == url
    assert secret["secret"].startswith("whsec_")
    assert house.api in chosen["api.public_url"]


async def test_a_new_link_to_the_dashboard_serves_once_and_its_servers_keep_their_ports(upper: Upper) -> None:
    process, house = await upper.start()
    links = []
    for words in (("dashboard",), ("up", "--link")):
        asked = await upper.spawn(*words, "--data-dir", str(upper.folder))
        assert await asked.gone() == 0, asked.log
        links.append(asked.log.strip())
    async with httpx.AsyncClient(trust_env=False) as browser:
        answers = [(await browser.get(link)) for link in (*links, links[0])]
    assert [answer.status_code for answer in answers] == [303, 303, 401]
    assert "`carillon dashboard` prints a new link" in html.unescape(answers[-1].text)
    await ended(process)
    _, again = await upper.start()
    assert (again.store, again.audience) == (house.store, house.audience)


async def test_the_doctor_finds_the_running_one_by_its_folder(upper: Upper, tmp_path: Path) -> None:
    _, house = await upper.start()
    (tmp_path / "carillon.toml").write_text(f'[embedded]\ndata_dir = "{upper.folder}"\n')
    doctor = await upper.spawn("--config", str(tmp_path / "carillon.toml"), "doctor")
    assert await doctor.gone() == 0, doctor.log
    assert f"A `carillon up` runs here, as process {house.process.pid}" in doctor.log
    assert "0 warnings, 0 faults" in doctor.log


@pytest.mark.parametrize(
    "fault",
    and_rarely(
        "send.after_commit@3=kill",
        rarely=("plan.after_page=kill", "send.after_take@2=kill", "send.in_transaction@3=kill"),
    ),
)
async def test_a_job_goes_on_by_itself_after_a_kill(upper: Upper, fault: str) -> None:
    killed, house = await upper.start(fault=fault)
    app_id, job_id = await job_to(house, 20_000, answered=False)
    assert await killed.gone() == -signal.SIGKILL, killed.log

    again, house = await upper.start()
    job = await completed(house, app_id, job_id)
    assert (job["sent"], job["failed"], job["totalTokens"], job["totalBatches"]) == (20_000, 0, 20_000, 20)
    await ended(again)
    assert await upper.sent(job_id) == everybody(20_000)


@pytest.mark.slow
async def test_all_unfinished_jobs_go_on_not_only_the_first(upper: Upper) -> None:
    killed, house = await upper.start(fault=every_lane("hang"))
    first = await job_to(house, 12_000)
    second = await job_to(house, 12_000)
    await planned(house, *second, devices=12_000)
    killed.send(signal.SIGKILL)
    assert await killed.gone() == -signal.SIGKILL, killed.log
    again, house = await upper.start()
    for app_id, job_id in (first, second):
        assert (await completed(house, app_id, job_id))["sent"] == 12_000
    await ended(again)
    for _, job_id in (first, second):
        assert await upper.sent(job_id) == everybody(12_000)


@pytest.mark.slow
async def test_a_paused_job_is_still_paused_after_a_restart(upper: Upper) -> None:
    process, house = await upper.start(fault=every_lane("delay:10"))
    app_id, job_id = await job_to(house, 24_000)
    async with customer_of(house) as customer:
        await process.reached("send.after_take")
        paused = await customer.call("PUT", f"/apps/{app_id}/jobs/{job_id}/pause")
        assert paused["status"] == "paused"
    await ended(process)

    again, house = await upper.start()
    async with customer_of(house) as customer:
        job = await customer.job(app_id, job_id)
        assert (job["status"], job["completedAt"]) == ("paused", 0)
        assert job["sent"] < 24_000
        assert [each["id"] for each in await customer.list_all(f"/apps/{app_id}/jobs")] == [job_id]
        assert [each["locale"] for each in await customer.list_all(f"/apps/{app_id}/templates")] == ["en", "pt"]
        resumed = await customer.call("PUT", f"/apps/{app_id}/jobs/{job_id}/resume")
        assert resumed["status"] == ""
    assert (await completed(house, app_id, job_id))["sent"] == 24_000
    await ended(again)
    assert await upper.sent(job_id) == everybody(24_000)


async def test_a_second_one_on_the_same_folder_is_refused_in_one_line(upper: Upper) -> None:
    _, house = await upper.start()
    second = await upper.spawn("up", "--data-dir", str(upper.folder))
    assert await second.gone() == 1
    assert second.log.startswith("Error: Carillon runs on ")
    assert house.api in second.log
    assert len(second.log.splitlines()) == 1


@pytest.mark.slow
async def test_it_ends_as_failed_when_one_of_its_servers_dies(upper: Upper) -> None:
    process, _ = await upper.start()
    mark = processes.read_mark(upper.folder / "mongodb.mark")
    assert mark is not None
    processes.signal_all([mark], signal.SIGKILL)
    assert await process.gone() == 1
    assert "mongodb has ended by itself" in process.log


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_while_it_starts_leaves_nothing_behind(upper: Upper, number: signal.Signals) -> None:
    process = await upper.spawn("up", "--data-dir", str(upper.folder))
    await until(lambda: processes.read_mark(upper.folder / "postgresql.mark"), "a child")
    process.send(number)
    assert await process.gone() in (0, 130), process.log
    assert "Traceback" not in process.log
    for name in ("mongodb", "postgresql"):
        mark = processes.read_mark(upper.folder / f"{name}.mark")
        assert mark is None or not processes.is_alive(mark)


def test_what_tells_of_a_dead_process_is_not_believed(tmp_path: Path) -> None:
    house = Instance(
        process=processes.ProcessMark(1, "never"),
        api="",
        health="",
        store="",
        audience="",
        stream="",
        data="",
        admin="",
    )
    (tmp_path / "running.json").write_bytes(msgspec.json.encode(house))
    assert find_running(tmp_path) is None


async def test_its_data_are_closed_to_other_users(upper: Upper) -> None:
    process, house = await upper.start()
    await job_to(house, 1_000)
    everything = [upper.folder, *upper.folder.rglob("*")]
    open_to_others = {
        str(path.relative_to(upper.folder)): oct(path.lstat().st_mode)
        for path in everything
        if not path.is_symlink() and path.lstat().st_mode & 0o077
    }
    assert {name for name in open_to_others if not name.startswith("postgresql/")} == set()
    assert stat.S_IMODE((upper.folder / "postgresql").stat().st_mode) == 0o700
    password = urlsplit(house.audience).password
    assert password
    assert password not in process.log
    await ended(process)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
async def test_another_user_of_the_machine_cannot_use_its_postgresql(upper: Upper) -> None:
    process, house = await upper.start()
    port = urlsplit(house.audience).port
    program = f"""
import socket, struct
words = b"user\\0postgres\\0database\\0postgres\\0\\0"
connection = socket.create_connection(("127.0.0.1", {port}))
connection.sendall(struct.pack("!ii", len(words) + 8, 196608) + words)
answer = connection.recv(100)
print(answer[:1], struct.unpack("!i", answer[5:9]))
try:
    open({str(upper.folder / "running.json")!r})
except PermissionError:
    print("closed")
"""
    other = await asyncio.to_thread(
        subprocess.run, ["python3", "-c", program], capture_output=True, text=True, user=65_534, group=65_534,
        extra_groups=[], cwd="/", check=False, timeout=SECONDS,
    )  # fmt: skip
    assert other.stdout.splitlines() == ["b'R' (10,)", "closed"], (other.stdout, other.stderr)
    await ended(process)


@pytest.mark.slow
async def test_it_goes_on_where_no_file_can_be_opened_for_a_while(upper: Upper) -> None:
    process, house = await upper.start()
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
    held = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (held + 5, limits[1]))
    peers = [await asyncio.open_connection("127.0.0.1", urlsplit(house.api).port) for _ in range(50)]
    for _, writer in peers:
        writer.write(b"GET / HTTP/1.1\r\nhost: he")
    await asyncio.sleep(3)  # six looks at the servers
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
    for _, writer in peers:
        writer.transport.abort()
    app_id, job_id = await job_to(house, 1_000)
    assert (await completed(house, app_id, job_id))["sent"] == 1_000
    await ended(process)
