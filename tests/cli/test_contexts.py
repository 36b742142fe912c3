"""The deployments that a person works with: who may read the file, and which of them is asked."""

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from services.cli import main
from services.embedded.processes import birth
from shared.runtime.configuration import load
from tests.cli.conftest import Program

SECRET = "carillon_tell-no-one"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in list(os.environ):
        if name.startswith("CARILLON_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def carillon(*words: str, given: str | None = None, **environment: str) -> Result:
    return CliRunner().invoke(main, words, input=given, env=environment, prog_name="carillon")


def add(name: str, *words: str) -> None:
    ended = carillon("context", "add", name, "--url", f"https://{name}.example.com", *words)
    assert ended.exit_code == 0, ended.output


def listed() -> list[dict[str, object]]:
    return [json.loads(line) for line in carillon("context", "list", "--json").stdout.splitlines()]


def test_contexts_are_kept_used_listed_and_forgotten(bare: Program) -> None:
    add("one", "--user", "ana@example.com", "--default-app", "game")
    add("two", "--token", SECRET)
    assert stat.S_IMODE(bare.contexts.stat().st_mode) == 0o600
    assert SECRET in bare.contexts.read_text()
    assert [(each["name"], each["inUse"]) for each in listed()] == [("one", True), ("two", False)]
    assert SECRET not in carillon("context", "list").output + json.dumps(listed())
    assert carillon("context", "use", "two").exit_code == 0
    assert [each["inUse"] for each in listed()] == [False, True]
    assert carillon("context", "remove", "two").exit_code == 0
    assert carillon("context", "remove", "two").exit_code == 4
    assert [each["name"] for each in listed()] == ["one"]


def test_a_token_can_come_from_stdin(bare: Program) -> None:
    words = ("context", "add", "ci", "--url", "https://ci.example.com", "--token", "-")
    assert carillon(*words, given=f"{SECRET}\n").exit_code == 0
    assert f'token = "{SECRET}"' in bare.contexts.read_text()


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o620, 0o644])
def test_a_file_that_others_can_read_or_write_is_refused(bare: Program, mode: int) -> None:
    add("one", "--token", SECRET)
    bare.contexts.chmod(mode)
    ended = carillon("apps", "list")
    assert ended.exit_code == 2
    assert f"chmod 600 {bare.contexts}" in ended.stderr
    assert SECRET not in ended.output


@pytest.mark.parametrize("content", ["current = ", "[contexts.one]\nurl = 1\n", '[contexts.one]\nuri = "http://x"\n'])
def test_a_file_that_cannot_be_understood_is_told(bare: Program, content: str) -> None:
    bare.keep("http://x")
    bare.contexts.write_text(content)
    ended = carillon("apps", "list")
    assert ended.exit_code == 2
    assert str(bare.contexts) in ended.stderr


def test_where_no_deployment_is_named_all_ways_to_name_one_are_told() -> None:
    ended = carillon("apps", "list")
    assert ended.exit_code == 2
    for way in ("carillon context add", "CARILLON_TARGET", "carillon up"):
        assert way in ended.stderr


def test_a_context_that_is_not_there_is_told_with_those_that_are() -> None:
    add("one")
    for ended in (carillon("apps", "list", "--context", "two"), carillon("apps", "list", CARILLON_CONTEXT="two")):
        assert ended.exit_code == 2
        assert "there are: one" in ended.stderr


def test_two_deployments_at_once_are_refused() -> None:
    add("one")
    ended = carillon("apps", "list", CARILLON_CONTEXT="one", CARILLON_TARGET="https://other.example.com")
    assert ended.exit_code == 2
    assert "unset one of them" in ended.stderr


def test_one_way_of_asking_is_enough() -> None:
    words = ("context", "add", "one", "--url", "https://one.example.com", "--token", "a", "--user", "b@example.com")
    assert carillon(*words).exit_code == 2
    assert carillon("context", "add", "one", "--url", "one.example.com").exit_code == 2


def test_the_services_do_not_mind_the_variables_of_the_command_line() -> None:
    load({"CARILLON_CONTEXT": "one", "CARILLON_TARGET": "https://x", "CARILLON_TOKEN": SECRET})


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.native
async def test_a_deployment_is_named_in_this_order(cli: Program, url: str) -> None:
    """By the option, by a variable, by the file, and at last by a `carillon up` on the data folder."""
    own = {"pid": os.getpid(), "born": birth(os.getpid())}
    folder = cli.home / ".carillon"
    folder.mkdir()
    running = {"process": own, "api": url, "admin": "admin@example.com"}
    (folder / "running.json").write_text(json.dumps(running))
    words = ("context", "show", "--json")
    assert (await cli.done(*words)).json["context"] == "test"
    assert (await cli.done(*words, CARILLON_CONTEXT="test")).json["context"] == "test"
    assert (await cli.run(*words, CARILLON_TARGET=url)).code == 6  # whose variables name nobody
    cli.contexts.unlink()
    assert (await cli.done(*words)).json["context"] == "up"
    assert (await cli.done(*words, CARILLON_EMBEDDED_DATA_DIR=str(folder))).json["name"] == "admin@example.com"
    (folder / "running.json").write_text(json.dumps(running | {"process": {"pid": 1, "born": "never"}}))
    assert (await cli.run(*words)).code == 2


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.native
async def test_a_token_command_is_asked_each_time(cli: Program, house: object, url: str) -> None:
    made = (await cli.done("tokens", "create", "printed", "--admin")).out.strip()
    (cli.home / "secret").write_text(made)
    cli.contexts.write_text(f'current = "x"\n[contexts.x]\nurl = "{url}"\ntoken_command = "cat secret"\n')
    assert (await cli.done("context", "show", "--json")).json["name"] == "printed"
    (cli.home / "secret").unlink()
    ended = await cli.run("context", "show")
    assert ended.code == 1
    assert "token_command" in ended.err
