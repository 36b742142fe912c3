"""Completion, as three shells ask for it: with the names that the API knows, and silent where it does not answer."""

import shutil
import sys

import pytest

from services.embedded.processes import free_port
from tests.cli.conftest import Program, started
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

# What each shell does when somebody presses the tabulator at the end of `carillon $WORDS`.
ASK = {
    "bash": """
        eval "$(carillon completion bash)"
        COMP_WORDS=(carillon $WORDS "$LAST"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _carillon_completion carillon; printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        autoload -U compinit; compinit -u -D; eval "$(carillon completion zsh)"
        compadd() { while [[ $1 == -* ]]; do [[ $1 == -[UV] ]] && shift; shift; done; print -l -- "${(@P)1}" }
        _describe() { print -l -- "${(@P)3}" "${(@P)2}" }
        words=(carillon ${=WORDS} "$LAST"); CURRENT=${#words}; _carillon_completion
    """,
    "fish": """
        carillon completion fish | source
        complete -C "carillon $WORDS $LAST"
    """,
}


async def ask(cli: Program, shell: str, words: str, last: str, **environment: str) -> str:
    """What the shell offers."""
    program = cli.home / "bin" / "carillon"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m services "$@"\n')
        program.chmod(0o755)
    variables = cli.variables(WORDS=words, LAST=last, **environment)
    variables["PATH"] = f"{program.parent}:{variables['PATH']}"
    bare = {"bash": "--norc", "fish": "--no-config", "zsh": "-f"}[shell]
    async with started(shell, bare, "-c", ASK[shell], environment=variables, folder=cli.home) as running:
        ended = await running.ended()
    assert ended.err == ""
    return ended.out


@pytest.mark.parametrize("shell", ASK)
async def test_verbs_options_and_names_of_the_api_are_offered(cli: Program, house: House, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    await house.app("completed-by-name")
    assert "dead-letters" in await ask(cli, shell, "", "dea")
    assert "--cron" in await ask(cli, shell, "schedules create x", "--cr")
    assert "completed-by-name" in await ask(cli, shell, "apps show", "comp")


@pytest.mark.slow
async def test_where_nobody_answers_nothing_is_offered_and_nothing_said(bare: Program) -> None:
    target = {"CARILLON_TARGET": f"http://127.0.0.1:{free_port()}"}
    assert (await ask(bare, "bash", "apps show", "", **target)).strip() == ""
    assert (await ask(bare, "bash", "jobs show", "")).strip() == ""


async def test_credentials_are_offered_by_their_names(cli: Program, house: House) -> None:
    app_id = await house.app()
    body = {"name": "completed-sandbox", "kind": "sandbox", "testRecipient": "ana"}
    assert (await house.admin.post(f"/apps/{app_id}/credentials", body)).status == 201
    assert "completed-sandbox" in await ask(cli, "bash", f"credentials show --app {app_id}", "comp")


@pytest.mark.slow
async def test_jobs_and_keys_are_offered_by_their_beginning(cli: Program, house: House) -> None:
    app_id = await house.app_with_template()
    job = (await house.admin.post(f"/apps/{app_id}/jobs?template=like", {"service": "apns"})).json["id"]
    assert job in await ask(cli, "bash", f"jobs show --app {app_id}", job[:20])
    await cli.done("schedules", "create", "completed-key", "--every", "60", "--http", "http://example.com")
    assert "completed-key" in await ask(cli, "bash", "schedules show", "compl")


@pytest.mark.parametrize("shell", ASK)
async def test_a_script_for_each_shell_is_printed(bare: Program, shell: str) -> None:
    assert f"_CARILLON_COMPLETE={shell}_complete" in (await bare.done("completion", shell)).out
