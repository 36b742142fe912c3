"""An API that means ill: what it answers reaches the terminal as text and nothing else."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from services.cli.output import visible
from tests.cli.conftest import Program
from tests.cli.terminals import Terminal, nothing
from tests.services.api.conftest import House

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\r\nroot@host# "


@asynccontextmanager
async def answering(*answers: bytes, asked: list[bytes] | None = None) -> AsyncIterator[str]:
    """A server that gives each connection the next of these answers, and the last one ever after; its URL. What it is
    `asked` is kept."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: ([0-9]+)", head.lower())
        body = await reader.readexactly(int(length[1])) if length else b""
        if asked is not None:
            asked.append(head + body)
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def http(body: Any, status: str = "200 OK", kind: str = "application/json") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
    return head.encode() + content


def assert_harmless(text: str) -> None:
    assert all(character.isprintable() or character == "\n" for character in text), repr(text)
    assert "root@host#" not in {line.strip() for line in text.splitlines()}


NOTHING = "00000000-0000-0000-0000-000000000007"
APP = {
    "id": EVIL, "name": EVIL, "bundleId": EVIL, "createdBy": EVIL, "createdAt": 1, "updatedAt": 1,
}  # fmt: skip


@pytest.mark.parametrize("how", [(), ("--json",), ("-q",), ("--wide",)])
async def test_names_and_ids_are_shown_and_not_obeyed(bare: Program, how: tuple[str, ...]) -> None:
    async with answering(http([APP])) as url:
        ended = await bare.done("apps", "list", *how, CARILLON_TARGET=url)
    assert_harmless(ended.out + ended.err)
    assert "owned" in ended.out
    if how == ("--json",):
        assert ended.lines == [APP]


async def test_an_error_is_shown_and_not_obeyed(bare: Program) -> None:
    problem = {"title": EVIL, "status": 422, "detail": EVIL, "reason": EVIL, "field": EVIL}
    async with answering(http(problem, "422 Unprocessable Entity", "application/problem+json")) as url:
        ended = await bare.run("apps", "create", "x", "y", CARILLON_TARGET=url)
    assert ended.code == 5
    assert_harmless(ended.err)


@pytest.mark.parametrize(
    "answer",
    [http(b"<html>a proxy</html>", kind="text/html"), http({"not": "a list"}), http(b""), b"SSH-2.0-x\r\n", b""],
)
async def test_an_answer_that_is_none_is_told_in_a_sentence(bare: Program, answer: bytes) -> None:
    async with answering(answer) as url:
        ended = await bare.run("apps", "list", CARILLON_TARGET=url)
    assert ended.code in {1, 7}
    assert ended.err.startswith("Error: ")
    assert "Traceback" not in ended.err


async def test_an_answer_that_lacks_a_field_is_told_in_a_sentence(bare: Program) -> None:
    async with answering(http([{"id": "x"}])) as url:
        ended = await bare.run("apps", "list", CARILLON_TARGET=url)
    assert ended.code == 1
    assert "Traceback" not in ended.err


@pytest.mark.native
@pytest.mark.asyncio(loop_scope="module")
async def test_what_users_have_stored_is_harmless(cli: Program, house: House) -> None:
    app_id = await house.app()
    body = {"name": "like\x1b[2J", "locale": "en", "body": {"alert": EVIL}, "defaults": {EVIL: EVIL}}
    made = await house.admin.post(f"/apps/{app_id}/templates", body)
    assert made.status == 201, made.body
    app = ("--app", app_id)
    for words in (("list",), ("list", "--json"), ("show", made.json["id"]), ("show", made.json["id"], "--json")):
        ended = await cli.done("templates", *words, *app)
        assert_harmless(ended.out + ended.err)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_completion_offers_no_name_that_a_shell_would_obey(bare: Program, shell: str) -> None:
    names = (
        "`x`",
        "$(x)",
        "a;x",
        "a b",
        "two\nlines",
        "plain\n",
        "--yes",
        "a\\x",
        "'",
        EVIL,
        "user@example.com~1:a+b_c.d-e",
    )
    found = [{"name": name, "locale": EVIL} for name in names]
    words = f"carillon templates show --app {NOTHING} "
    last = "" if shell == "fish" else "5"
    async with answering(http(found)) as url:
        ended = await bare.run(
            _CARILLON_COMPLETE=f"{shell}_complete", COMP_WORDS=words, COMP_CWORD=last, CARILLON_TARGET=url
        )
    word = visible(EVIL)
    offered = {
        "bash": "plain,user@example.com~1:a+b_c.d-e\n",
        "zsh": f"plain\nuser@example.com~1\\:a+b_c.d-e\n{word}\n",
        "fish": f"plain,user@example.com~1:a+b_c.d-e\t{word}\n",
    }
    assert ended.err == ""
    assert ended.out == offered[shell]


async def test_a_question_is_shown_and_not_obeyed_and_the_name_is_typed_as_it_is_shown(bare: Program) -> None:
    counts = {"totalTokens": 1_000_000, "completedTokens": 0}
    zone = {"jobId": NOTHING, "state": "running"} | counts
    group = {"id": NOTHING, "name": EVIL, "zones": [zone]} | counts
    words = ("groups", "stop", NOTHING, "--app", NOTHING)
    shown = visible(EVIL)
    async with answering(http(group)) as url:
        terminal = Terminal(bare, *words, CARILLON_TARGET=url)
        assert await terminal.run(f"type {shown}", nothing, f"{shown}\r\r") == 0
        unasked = await bare.run(*words, CARILLON_TARGET=url)
    assert all(part not in terminal.seen for part in ("\x1b]0", "\x1b[2J", "\x9b", "\u202e")), repr(terminal.seen)
    assert_harmless(unasked.err)


async def test_what_stands_beside_a_result_is_harmless(bare: Program) -> None:
    made = {"id": EVIL, "name": EVIL, "token": EVIL}
    async with answering(http(made, "201 Created")) as url:
        ended = await bare.done("tokens", "create", "x", CARILLON_TARGET=url)
    assert "secret is not shown again" in ended.err
    assert_harmless(ended.out + ended.err)
