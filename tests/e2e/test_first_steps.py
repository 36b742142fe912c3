"""What the documentation tells a newcomer to type, typed into `carillon up` as it stands there."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from services.commands.seed import seed
from services.embedded.instance import Instance
from services.embedded.processes import free_port
from shared.domain.push.records import APNS
from tests.deploy.manifests import ROOT
from tests.e2e.test_embedded import customer_of, upper_at
from tests.waiting import until

pytestmark = pytest.mark.native

PAGES = {"README.md": 3, "docs/events.md": 2, "docs/uploads.md": 5}
TABS = ("curl", "CLI", "Python")
TUTORIALS = {"docs/first-push.md": (15, 10, 6), "docs/first-mail.md": (13, 8, 8), "docs/first-webhook.md": (8, 6, 5)}
"""How many steps each has, of a tutorial to the readers of each tab, so that none is overlooked."""

DEVICES, LINES = 1_000, 2**20
ANSWERED = {"JOB": "id", "URL": "url", "CSV": "csvPath", "GROUP": "jobGroupId", "UPLOAD": "uploadId"}
"""What an answer calls that which the next commands need."""

_CARILLON, _PYTHON = ".venv/bin/carillon", ".venv/bin/python"
_COMMAND = "|".join(re.escape(word) for word in ("curl", "printf", "cat", "cd", "export", _CARILLON, _PYTHON))
_BEGINNING = re.compile(rf"^(?=(?:{_COMMAND}) |[A-Z_]+=)", re.MULTILINE)
_ELSEWHERE = re.compile(r"\b(?:make|aws|seed)\b")
"""What is no command to a deployment that runs, or is the fixture's here."""

_TAB = re.compile(r"^/// tab \| (\w+)\n(.*?)^///\n", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r'^```(\w*)(?: title="([\w.]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
_RECEIVER = f"{_PYTHON} receiver.py"
"""Commands that have a terminal of their own on the page, and go into the background here."""

_IMPORTS = "import asyncio, os\nfrom datetime import UTC, datetime\nfrom carillon import AsyncCarillon, PushJob\n\n"
_STEP = " " * 4
_RUN = "\nasyncio.run(main(os.environ['APP']))\n"


@dataclass
class Step:
    """A command, a program, or what a page has its reader save in a file."""

    text: str
    file: str = ""
    is_program: bool = False


def steps_of(page: str, tab: str = "") -> list[Step]:
    """All that the page has to be typed into a deployment that runs, in its order, by a reader who chose the tab."""
    steps: list[Step] = []
    text = _TAB.sub(lambda found: found[2] if found[1] == tab else "", (ROOT / page).read_text("utf-8"))
    for language, file, block in _BLOCK.findall(text):
        if file:
            steps.append(Step(block, file))
        elif tab and language == "python":
            steps.append(Step(block, is_program=True))
        elif not language:
            parts = [part.strip() for part in _BEGINNING.split(block)]
            steps += [Step(part) for part in parts if _BEGINNING.match(part) and not _ELSEWHERE.search(part)]
    return steps


class Terminal:
    """A reader's shell and Python, into which they type one step after the other."""

    def __init__(self, house: Instance, folder: Path, app_id: str) -> None:
        self.house = house
        self.folder = folder
        paths = {"HOME": str(folder), "PWD": str(folder), "TMPDIR": str(folder), "PYTHONPATH": f"{ROOT}:{ROOT}/client"}
        self.variables = dict(os.environ) | paths | {"APP": app_id}
        self.session: dict[str, Any] = {}
        self.answer = ""
        self._port = str(free_port())

    async def do_all(self, steps: list[Step]) -> None:
        """Do all steps of a page, and leave Python."""
        try:
            for step in steps:
                await self.do(step)
        finally:
            if client := self.session.pop("client", None):
                client.close()

    async def do(self, step: Step) -> None:
        if step.file:
            (self.folder / step.file).write_text(self._here(step.text))
        elif step.is_program:
            await asyncio.to_thread(exec, self._here(step.text), self.session)
        elif step.text == _RECEIVER:
            listens = f"curl -so /dev/null 127.0.0.1:{self._port}"
            await self.type(f"{_RECEIVER} >received 2>&1 & RECEIVER=$!; until {listens}; do sleep 0.1; done")
        else:
            await self.type(step.text)

    async def type(self, command: str) -> None:
        """Type a command, or find in the last answer what the next ones need."""
        if names := re.findall(r"([A-Z]+)=…", command):
            self.variables |= {name: json.loads(self.answer)[ANSWERED[name]] for name in names if name in ANSWERED}
            return
        kept = self.folder / "variables"
        shell = await asyncio.create_subprocess_exec(
            "bash", "-euc", f"set -a\n{self._here(command)}\nenv -0 >{shlex.quote(str(kept))}",
            cwd=self.variables["PWD"], env=self.variables,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, failed = (text.decode() for text in await asyncio.wait_for(shell.communicate(), 100))
        assert shell.returncode == 0, (command, said, failed)
        self.answer = said
        self.variables = dict(each.split("=", 1) for each in kept.read_text().split("\0") if each)

    def end_receiver(self) -> None:
        if receiver := self.variables.get("RECEIVER"):
            os.kill(int(receiver), signal.SIGTERM)

    def _here(self, text: str) -> str:
        """The text with the programs and the ports of this machine."""
        elsewhere = {
            "9000": self._port,
            "localhost:8080": self.house.api.removeprefix("http://"),
            _CARILLON: f"{shlex.quote(sys.executable)} -m services",
            _PYTHON: shlex.quote(sys.executable),
            "curl -s ": "curl -sS --fail-with-body ",
        }
        return re.sub("|".join(map(re.escape, elsewhere)), lambda found: elsewhere[found[0]], text)


@pytest.fixture
async def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    async with upper_at(tmp_path / ".carillon") as upper:
        _, house = await upper.start()
        async with customer_of(house) as customer:
            seeded = await seed(customer, house.audience, app="demo", service=APNS, count=DEVICES)
        terminal = Terminal(house, tmp_path, seeded.app_id)
        try:
            yield terminal
        finally:
            terminal.end_receiver()


async def test_all_that_a_newcomer_is_told_to_type_works(terminal: Terminal) -> None:
    for page, count in PAGES.items():
        steps = steps_of(page)
        assert len(steps) == count, page
        if page == "docs/uploads.md":
            lines = "".join(f"made-up-{number}\n" for number in range(LINES))
            (terminal.folder / "users.csv").write_text(f"id\n{lines}")
        await terminal.do_all(steps)
    assert json.loads(terminal.answer)["lines"] == LINES + 1


@pytest.mark.parametrize("tab", TABS)
async def test_the_tutorials_lead_to_what_they_say(terminal: Terminal, tab: str) -> None:
    for page, counts in TUTORIALS.items():
        steps = steps_of(page, tab)
        assert len(steps) == counts[TABS.index(tab)], (page, [step.text for step in steps])
        await terminal.do_all(steps)
    async with customer_of(terminal.house) as customer:

        async def pushes_are_done() -> bool:
            jobs = await customer._list_all(f"/apps/{terminal.variables['APP']}/jobs")
            done = [job for job in jobs if job["templateName"] == "welcome" and job["state"] == "completed"]
            return len(done) == 2

        await until(pushes_are_done, "both pushes")
    told = {"ana@example.com", "bob+bounce@example.com", "eve@example.com"}
    notes = terminal.folder / ".carillon/sandbox.ndjson"
    await until(lambda: {json.loads(line)["to"] for line in notes.read_text().splitlines()} == told, "all mails")
    received = terminal.folder / "received"
    await until(lambda: '{"report":"sales"}' in received.read_text().replace(" ", ""), "the webhook")


@pytest.mark.parametrize("page", TUTORIALS)
def test_each_choice_of_a_tutorial_has_every_tab(page: str) -> None:
    named = [found[1] for found in _TAB.finditer((ROOT / page).read_text("utf-8"))]
    assert named == list(TABS) * (len(named) // len(TABS))


async def test_the_programs_of_the_clocks_page_run(terminal: Terminal) -> None:
    page = (ROOT / "docs/clock.md").read_text("utf-8")
    whole, part = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (terminal.folder / "users.csv").write_text("id\nmade-up-1\n")
    await terminal.type(f"{_PYTHON} -c {shlex.quote(whole)}")
    assert "training-invitations-42 active" in terminal.answer
    client = "AsyncCarillon('http://localhost:8080', user='admin@example.com')"
    inside = f"async with {client} as client:\n{indent(part, _STEP)}"
    program = f"async def main(app_id: str) -> None:\n{indent(inside, _STEP)}"
    await terminal.type(f"{_PYTHON} -c {shlex.quote(_IMPORTS + program + _RUN)}")
    assert re.search(r"^\d+ of \d+$", terminal.answer, re.MULTILINE)


async def test_the_bus_page_leads_to_events_that_arrive(terminal: Terminal) -> None:
    await terminal.do_all(steps_of("docs/bus.md"))
    received = terminal.folder / "received"
    urls = ('orders/1"', 'carillon-test"')
    await until(lambda: all(url in received.read_text() for url in urls), "both events")
