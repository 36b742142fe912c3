"""The native stack itself, in a folder of its own beside the one that the other tests use."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pymongo.errors import PyMongoError

from services.embedded import processes
from tests import stack as control
from tests.stack.kafka import class_path
from tests.stack.places import CHECKOUT, HOME_VARIABLE
from tests.stack.server import Missing

pytestmark = pytest.mark.later("starts, kills and freezes servers of its own")

SECONDS = 150.0


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="carillon-stack-test-") as folder:
        Path(folder).chmod(0o711)
        monkeypatch.setenv(HOME_VARIABLE, folder)
        monkeypatch.delenv("CARILLON_TEST_MONGO_URL", raising=False)
        yield Path(folder)
        control.down()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.stack", *words]


def up(*names: str) -> dict[str, Any]:
    done = subprocess.run(
        command("up", *names), cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def marks(home: Path) -> dict[str, processes.ProcessMark]:
    found = {file.parent.name: processes.read_mark(file) for file in home.glob("*/mark.json")}
    return {name: mark for name, mark in found.items() if mark is not None}


def insert(url: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        client["kept"]["things"].insert_one({})


def count(url: str) -> int:
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        return client["kept"]["things"].count_documents({})


def test_what_runs_is_used_again_and_down_leaves_nothing(home: Path) -> None:
    first = up("mongo", "s3", "postgres")
    assert first["missing"] == {}
    assert up("mongo", "s3", "postgres") == first
    running = marks(home)
    families = [member for mark in running.values() for member in processes.family(mark)]
    assert set(running) == {"mongo", "s3", "postgres"}
    assert len(families) > len(running)  # PostgreSQL has children
    subprocess.run(command("down"), cwd=CHECKOUT, check=True, timeout=SECONDS)
    assert not any(processes.is_alive(member) for member in families)
    assert not list(home.glob("*/"))


def test_only_what_was_killed_is_started_again_where_it_was(home: Path) -> None:
    first = up("mongo", "s3")
    insert(first["mongo_url"])
    control.kill("mongo")
    assert control.pid("mongo") is None
    second = up("mongo", "s3")
    assert second["mongo_url"] == first["mongo_url"]
    assert second["pids"]["mongo"] != first["pids"]["mongo"]
    assert second["pids"]["s3"] == first["pids"]["s3"]
    assert count(second["mongo_url"]) == 1


def test_a_starter_killed_half_way_leaves_nothing_in_the_way(home: Path) -> None:
    starter = subprocess.Popen(command("up", "postgres", "s3"), cwd=CHECKOUT, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + SECONDS
    while "s3" not in marks(home):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    starter.kill()
    starter.wait(SECONDS)
    left = [mark for mark in marks(home).values() if processes.is_alive(mark)]
    assert left
    assert not (home / "s3" / "ready").exists()
    started = up("postgres", "s3")
    assert started["missing"] == {}
    assert not any(processes.is_alive(mark) for mark in left)
    assert set(started["pids"]) == {"postgres", "s3"}


def test_two_starters_at_once_start_one_stack(home: Path) -> None:
    starters = [subprocess.Popen(command("up", "mongo"), cwd=CHECKOUT, stdout=subprocess.PIPE) for _ in range(2)]
    shown = [starter.communicate(timeout=SECONDS)[0] for starter in starters]
    assert shown[0] == shown[1]
    assert json.loads(shown[0])["pids"]["mongo"] == marks(home)["mongo"].pid


def test_a_paused_server_answers_again_when_it_may(home: Path) -> None:
    url = control.ensure("mongo").mongo_url
    control.pause("mongo")
    client: pymongo.MongoClient[dict[str, Any]]
    client = pymongo.MongoClient(url, serverSelectionTimeoutMS=500, timeoutMS=500)
    with client, pytest.raises(PyMongoError):
        client.admin.command("ping")
    assert "mongo" in control.status().missing
    control.unpause("mongo")
    assert control.status().mongo_url == url


def test_a_server_that_was_left_paused_is_ended_all_the_same(home: Path) -> None:
    control.ensure("s3")
    mark = marks(home)["s3"]
    control.pause("s3")
    control.down()
    assert not processes.is_alive(mark)


@pytest.mark.slow
async def test_the_brokers_keep_their_data_over_a_restart(home: Path) -> None:
    here = control.ensure("kafka", "rabbitmq")
    if here.missing:
        raise control.MissingPart(str(here.missing))
    manage(here.rabbit_management_url, "PUT", "/api/queues/%2F/kept", b'{"durable": true}')
    await make_topic(here.kafka_servers)
    control.restart("kafka")
    control.restart("rabbitmq", kill_it=True)
    again = control.ensure("kafka", "rabbitmq")
    assert again.addresses == here.addresses
    assert not set(again.pids.values()) & set(here.pids.values())
    assert manage(here.rabbit_management_url, "GET", "/api/queues/%2F/kept")["durable"] is True
    assert "kept" in await topics(here.kafka_servers)


def manage(url: str, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
    credentials, _, server = url.removeprefix("http://").partition("@")
    request = urllib.request.Request(f"http://{server}{path}", data=body, method=method)
    request.add_header("Authorization", f"Basic {b64encode(credentials.encode()).decode()}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        said: dict[str, Any] = json.loads(answer.read() or b"{}")
    return said


async def make_topic(servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic("kept", 1, 1)])
    await admin.close()


async def topics(servers: str) -> list[str]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    names: list[str] = await admin.list_topics()
    await admin.close()
    return names


def test_the_last_session_stops_what_a_session_started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.stack.control.servers", only_s3)
    first, second = control.Session(), control.Session()
    first.close()
    assert control.pid("s3") is not None
    second.close()
    assert not marks(home)


def test_no_session_stops_what_a_person_started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.stack.control.servers", only_s3)
    started = control.ensure("s3")
    session = control.Session()
    assert session.endpoints == started
    session.close()
    assert control.pid("s3") == started.pids["s3"]


def only_s3() -> dict[str, Any]:
    from tests.stack.s3 import S3Server

    return {"s3": S3Server()}


def test_what_cannot_be_had_is_said(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CARILLON_TEST_MONGO_BINARY", "/no/such/program")
    found = control.ensure("mongo", "s3")
    assert "s3" in found.pids
    assert "/no/such/program" in found.missing["mongo"]
    with pytest.raises(control.MissingPart, match="/no/such/program"):
        _ = found.mongo_url
    monkeypatch.setenv("CARILLON_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Missing, match="java"):
        class_path()


@pytest.mark.parametrize("workers", ["-n0", pytest.param("-n2", marks=pytest.mark.slow)])
def test_a_missing_server_skips_its_test_loudly_and_fails_it_in_ci(tmp_path: Path, workers: str) -> None:
    test = "async def test_it(mongo_database): pass\ndef test_other(): pass\n"
    (tmp_path / "test_one.py").write_text(test)
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import *\nimport pytest\nfrom tests.stack import Endpoints\n"
        "@pytest.fixture(scope='session')\n"
        "def stack(): return Endpoints(addresses={}, missing={'mongo': 'not today'}, pids={})\n"
    )
    skipped = run_pytest(tmp_path, workers, CI="")
    assert "1 passed, 1 skipped" in skipped.stdout
    assert "TESTS THAT DID NOT RUN" in skipped.stdout
    assert "mongo: not today" in skipped.stdout
    failed = run_pytest(tmp_path, workers, CI="true")
    assert failed.returncode == 1
    assert "mongo: not today" in failed.stdout


def run_pytest(folder: Path, workers: str, **env: str) -> subprocess.CompletedProcess[str]:
    words = [
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        workers,
        "--rootdir",
        str(folder),
        "-o",
        "asyncio_mode=auto",
        str(folder),
    ]
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT)} | env
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )


def test_a_signal_reaches_only_the_process_that_is_meant(tmp_path: Path) -> None:
    mark = processes.spawn(["sleep", "600"], mark_file=tmp_path / "mark", log=tmp_path / "log")
    processes.signal_all([processes.ProcessMark(mark.pid, "somebody else's")], signal.SIGKILL)
    assert processes.is_alive(mark)
    processes.end(mark, grace_seconds=5)
    assert not processes.is_alive(mark)
