"""The command line: what it says, what it refuses, and its exit codes."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner, Result

from services.cli import main
from services.cli.root import NOUNS
from services.embedded.processes import free_port
from shared.runtime.configuration import load
from tests.stack import Endpoints
from tests.waiting import until

COMMANDS = tuple(
    "all api config dashboard demo doctor feedback import init records rules scheduler seed up worker".split()  # noqa: SIM905 - a list
)
"""Those that run something; `tests/cli` has the verbs."""


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but the test's own, and no data folder of the machine's."""
    for name in list(os.environ):
        if name.startswith("CARILLON_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def carillon(*words: str, **environment: str) -> Result:
    return CliRunner().invoke(main, words, env=environment, prog_name="carillon")


@pytest.fixture
def taken() -> Iterator[str]:
    """A port on which somebody listens already."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield str(listener.getsockname()[1])


def refused(result: Result, code: int = 1) -> str:
    """The only line on stderr."""
    assert result.exit_code == code, result.output
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    return line


def test_the_help_names_every_command_with_a_whole_sentence() -> None:
    said = carillon("--help").stdout.partition("Send:")[2].partition("Common options")[0]
    listed = re.findall(r"^  ([a-z-]+) {2,}(.*(?:\n {10}.*)*)$", said, re.MULTILINE)
    assert tuple(name for name, _ in listed) == (*NOUNS, *COMMANDS)
    assert all(sentence[0].isupper() and sentence.endswith(".") and "..." not in sentence for _, sentence in listed)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    result = carillon(command, "-h")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Usage: carillon {command} ")


def test_it_tells_its_version() -> None:
    assert re.fullmatch(r"carillon, version \d+\.\d+\.\d+(\.dev\d+)?\n", carillon("--version").stdout)


@pytest.mark.parametrize(
    "line", ["ring", "up --loud", "demo --devices 0", "seed --service fax", "feedback --read answers --read bus"]
)
def test_a_wrong_command_line_has_a_code_of_its_own(line: str) -> None:
    assert carillon(*line.split()).exit_code == 2


def test_config_prints_a_file_with_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "carillon.toml"
    file.write_text(carillon("config", CARILLON_API_PORT="1234").stdout)
    assert load({}, file) == load({})


def test_config_can_print_what_holds_with_passwords_masked() -> None:
    said = carillon("config", "--effective", CARILLON_STORE_URL="mongodb://me:tell-no-one@db/carillon").stdout
    assert 'url = "mongodb://me:***@db/carillon"' in said
    assert "tell-no-one" not in said


def test_a_wrong_setting_is_told_in_one_line() -> None:
    line = refused(carillon("worker", CARILLON_API_PORT="http"))
    assert line.startswith("Error: api.port (CARILLON_API_PORT in the environment): ")


def test_a_url_that_no_part_can_read_is_told_in_one_line() -> None:
    line = refused(carillon("init", CARILLON_BROKER_URL="https://me:tell-no-one@mq"))
    assert line == "Error: broker.url: amqp://, amqps:// or memory://, not https://"


@pytest.mark.parametrize(
    ("section", "url"),
    [
        ("store", "mongodb://[::1/carillon"),
        ("store", "mongodb://db:99999/carillon"),
        ("broker", "amqp://[::1/carillon"),
        ("stream", "kafka://[::1"),
        ("blobs", "s3://[bucket"),
    ],
)
def test_a_url_that_is_none_is_told_in_one_line(section: str, url: str) -> None:
    ports = {"CARILLON_API_PORT": "0", "CARILLON_HEALTH_PORT": "0"}
    line = refused(carillon("worker", **ports, **{f"CARILLON_{section.upper()}_URL": url}))
    assert line.startswith(f"Error: {section}.url: not a ")


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("URL", "s3://bucket/folder", "blobs.url: needs s3://<bucket> and nothing behind it"),
        ("URL", "s3://b", "blobs: 'b' is not the name of a bucket"),
        ("URL", "ftp://bucket", "blobs.url: s3:// or file://, not ftp://"),
        ("ENDPOINT_URL", "http://-minio-:9000", "blobs.endpoint_url: needs http:// or https:// and a host"),
        ("SECRET_KEY", "x", "blobs.access_key: an access key needs its secret key, and the other way round"),
    ],
)
@pytest.mark.parametrize("command", ["api", "scheduler", "worker"])
def test_a_wrong_setting_of_s3_is_told_before_a_file_is_touched(
    command: str, variable: str, value: str, told: str
) -> None:
    ports = {"CARILLON_API_PORT": "0", "CARILLON_HEALTH_PORT": "0"}
    assert refused(carillon(command, **ports, **{f"CARILLON_BLOBS_{variable}": value})) == f"Error: {told}"


@pytest.mark.parametrize("section", ["api", "health"])
@pytest.mark.parametrize("command", ["api", "up", "demo"])
def test_a_port_that_was_asked_for_and_is_taken_is_told_in_one_line(taken: str, section: str, command: str) -> None:
    ports = {"CARILLON_API_PORT": "0", "CARILLON_HEALTH_PORT": "0", f"CARILLON_{section.upper()}_PORT": taken}
    line = refused(carillon(command, **ports))
    assert line == f"Error: {section}.port: 127.0.0.1:{taken} is taken; 0 takes a free one"


def test_seed_wants_to_know_as_whom() -> None:
    result = carillon("seed")
    assert result.exit_code == 2
    assert "--email or --token" in result.stderr


def test_seed_needs_a_running_one_where_it_is_told_so() -> None:
    line = refused(carillon("seed", "--embedded", "--email", "a@b.example"))
    assert line == "Error: no `carillon up` runs on this data folder; --data-dir names another one"


def test_seed_says_where_nobody_answers(taken: str) -> None:
    line = refused(carillon("seed", "--api", "http://127.0.0.1:1", "--email", "a@b.example"))
    assert line.startswith("Error: the API at http://127.0.0.1:1 does not answer: ")


def test_seed_refuses_a_name_outside_its_rule() -> None:
    assert "letters A to Z" in refused(carillon("seed", "--app", "x y", "--email", "a@b.example"))


@pytest.mark.slow
async def test_init_all_and_seed_work_on_servers_that_the_settings_name(
    stack: Endpoints, mongo_database: str, rabbit_vhost: str, push_database: str, tmp_path: Path
) -> None:
    environment = {
        **stack.environment(mongo_database, rabbit_vhost, push_database),
        "CARILLON_API_FIRST_ADMIN": "admin@example.com",
        "CARILLON_API_PORT": str(free_port()),
        "CARILLON_HEALTH_PORT": "0",
        "CARILLON_LOGS_FORMAT": "json",
    }
    for _ in range(2):
        done = await ended(environment, "init")
        assert (done.returncode, done.stdout) == (0, "Everything is in place.\n"), done.stderr
    log = tmp_path / "all.log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            [sys.executable, "-m", "services", "all"], env=inherited(environment), stdout=output, stderr=output
        )
    try:
        await until(lambda: '"ready"' in log.read_text() or running.poll() is not None, "all services to be ready")
        done = await ended(environment, "seed", "--app", f"t{os.getpid()}x", "--devices", "2500")
        assert done.returncode == 0, done.stderr + log.read_text()
        assert "2,500 devices in" in done.stdout
        first, _, _ = re.findall(r"^  (curl .*)$", done.stdout, re.MULTILINE)
        answer = subprocess.run(first, shell=True, capture_output=True, text=True, check=True, timeout=50).stdout
        job = json.loads(answer)
        url = f"http://127.0.0.1:{environment['CARILLON_API_PORT']}/apps/{job['appId']}/jobs/{job['id']}"
        await until(lambda: sent_of(url) == 2_500, "the job to be completed")
        running.terminate()
        assert await asyncio.to_thread(running.wait, 40) == 0, log.read_text()
    finally:
        running.kill()


def sent_of(url: str) -> int:
    """How many the job has sent, once it is completed; before that none."""
    answer = httpx.get(url, headers={"x-forwarded-email": "admin@example.com"}, trust_env=False).json()
    return int(answer["sent"]) if answer["completedAt"] else 0


def inherited(environment: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}


async def ended(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services", *words]
    return await asyncio.to_thread(
        subprocess.run, command, env=inherited(environment), capture_output=True, text=True, check=False, timeout=50
    )


def test_a_missing_part_is_told_with_what_installs_it(tmp_path: Path) -> None:
    """An interpreter that has the packages, but beside which no server's program lies."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    here = Path(__file__).parents[2]
    environment = {
        "PATH": str(python.parent),
        "PYTHONPATH": os.pathsep.join(
            [str(here), str(here / "client"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
        ),
        "CARILLON_API_PORT": "0",
        "CARILLON_HEALTH_PORT": "0",
    }
    ended = subprocess.run(
        [python, "-m", "services", "up"], env=environment, capture_output=True, text=True, check=False, timeout=50
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith("Error: secantusd-rs is not installed: ")
    assert "pip install 'carillon[embedded]'" in line


@pytest.mark.parametrize("command", ["up", "demo"])
def test_a_data_folder_that_cannot_be_made_is_told_in_one_line(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").touch()
    result = carillon(command, "--data-dir", "file/below", CARILLON_API_PORT="0", CARILLON_HEALTH_PORT="0")
    assert refused(result).startswith("Error: the data folder cannot be used: ")
