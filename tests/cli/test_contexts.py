"""The deployments that a person works with: who may read the file, and which of them is asked."""

import json
import os
import stat
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from services.cli import complete, contexts, main
from services.embedded.processes import birth
from shared.runtime.configuration import load
from tests.cli.conftest import Program
from tests.cli.test_hostile import answering, http

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


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("current = ", ""),
        ("[contexts.one]\nurl = 1\n", "must be a string, not an integer"),
        ('[contexts.one]\nuri = "http://x"\n', "uri'; did you mean url?"),
    ],
)
def test_a_file_that_cannot_be_understood_is_told(bare: Program, content: str, told: str) -> None:
    bare.keep("http://x")
    bare.contexts.write_text(content)
    ended = carillon("apps", "list")
    assert ended.exit_code == 2
    assert str(bare.contexts) in ended.stderr
    assert told in ended.stderr


def test_where_no_deployment_is_named_all_ways_to_name_one_are_told() -> None:
    ended = carillon("apps", "list")
    assert ended.exit_code == 2
    for way in ("carillon context add", "CARILLON_TARGET", "carillon up"):
        assert way in ended.stderr


def test_a_context_that_is_not_there_is_told_with_those_that_are() -> None:
    add("one")
    for ended in (carillon("apps", "list", "--context", "two"), carillon("apps", "list", CARILLON_CONTEXT="two")):
        assert ended.exit_code == 2
        assert "Contexts: one" in ended.stderr


def test_two_deployments_at_once_are_refused() -> None:
    add("one")
    ended = carillon("apps", "list", CARILLON_CONTEXT="one", CARILLON_TARGET="https://other.example.com")
    assert ended.exit_code == 2
    assert "unset one of them" in ended.stderr


def test_one_way_of_asking_is_enough() -> None:
    words = ("context", "add", "one", "--url", "https://one.example.com", "--token", "a", "--user", "b@example.com")
    assert carillon(*words).exit_code == 2
    assert carillon("context", "add", "one", "--url", "one.example.com").exit_code == 2


def keep_running(folder: Path, api: str = "http://127.0.0.1:8080") -> Path:
    """The file of a `carillon up` that runs; its process is this one."""
    own = {"pid": os.getpid(), "born": birth(os.getpid())}
    folder.mkdir(0o700, exist_ok=True)
    file = folder / "running.json"
    file.write_text(json.dumps({"process": own, "api": api, "admin": "admin@example.com"}))
    file.chmod(0o600)
    return file


def named_by_up() -> str:
    """Where the `carillon up` of this folder is asked, if one is found."""
    try:
        return contexts.find_deployment().deployment.url
    except click.UsageError:
        return ""


@pytest.mark.parametrize(
    ("api", "found"),
    [
        ("http://127.0.0.1:8080", True),
        ("https://[::1]:8080", True),
        ("http://localhost:8080", True),
        ("http://192.0.2.7:8080", False),
        ("http://127.0.0.1.example.com", False),
        ("http://127.0.0.1:80@example.com", False),
        ("http://example.com#127.0.0.1", False),
    ],
)
def test_only_an_up_on_this_machine_gets_the_token(home: Path, api: str, found: bool) -> None:
    keep_running(home / ".carillon", api)
    assert named_by_up() == (api if found else "")


@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_an_up_that_others_may_have_named_is_ignored(home: Path, mode: int) -> None:
    file = keep_running(home / ".carillon")
    assert named_by_up()
    file.chmod(0o600 | mode)
    assert not named_by_up()
    file.chmod(0o600)
    file.parent.chmod(0o700 | mode)
    assert not named_by_up()


@pytest.mark.parametrize("whose", ["file", "folder"])
def test_an_up_that_somebody_else_named_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch, whose: str) -> None:
    file = keep_running(home / ".carillon")
    theirs = (file if whose == "file" else file.parent).stat().st_ino
    fstat = os.fstat

    def look(opened: int) -> os.stat_result:
        found = fstat(opened)
        return os.stat_result((*found[:4], 4_242, *found[5:10])) if found.st_ino == theirs else found

    monkeypatch.setattr(os, "fstat", look)
    assert not named_by_up()


def test_a_pipe_in_the_place_of_the_file_holds_nobody_up(home: Path) -> None:
    keep_running(home / ".carillon").unlink()
    os.mkfifo(home / ".carillon" / "running.json", 0o600)
    assert not named_by_up()


def test_passwords_in_addresses_are_not_shown() -> None:
    words = ("context", "add", "one", "--url", f"https://ana:{SECRET}@one.example.com")
    outputs = [carillon(*words).output, carillon("context", "use", "one").output]
    outputs += [carillon("context", "list", *how).output for how in ((), ("--json",), ("--wide",))]
    outputs += [carillon("context", "add", "two", "--url", f"ftp://ana:{SECRET}@two.example.com").output]
    assert "https://ana:***@one.example.com" in outputs[1] + outputs[2]
    assert SECRET not in "".join(outputs)
    param = click.Argument(["name"])
    [offered] = complete.contexts(click.Context(main), param, "o")
    assert (offered.value, offered.help) == ("one", "https://ana:***@one.example.com")


async def test_a_password_in_the_address_is_not_shown_with_the_caller(bare: Program) -> None:
    async with answering(http({"name": "ana"})) as url:
        secret_url = url.replace("//", f"//ana:{SECRET}@")
        for how in ((), ("--json",)):
            ended = await bare.done("context", "show", *how, CARILLON_TARGET=secret_url)
            assert "ana:***@" in ended.out
            assert SECRET not in ended.out + ended.err


def test_the_services_do_not_mind_the_variables_of_the_command_line() -> None:
    load({"CARILLON_CONTEXT": "one", "CARILLON_TARGET": "https://x", "CARILLON_TOKEN": SECRET})


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.native
async def test_a_deployment_is_named_in_this_order(cli: Program, url: str) -> None:
    """By the option, by a variable, by the file, and at last by a `carillon up` on the data folder."""
    own = {"pid": os.getpid(), "born": birth(os.getpid())}
    folder = cli.home / ".carillon"
    folder.mkdir(0o700)
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
