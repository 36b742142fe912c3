"""What the documentation tells a newcomer to type, typed into `carillon up` as it stands there."""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent

import pytest

from services.commands.seed import seed
from services.embedded.instance import Instance
from services.embedded.processes import free_port
from shared.domain.push.records import APNS
from tests.deploy.manifests import ROOT
from tests.e2e.test_embedded import customer_of, upper_at

pytestmark = pytest.mark.native

PAGES = {"README.md": 3, "docs/first-job.md": 20, "docs/uploads.md": 5}
"""How many commands each has, so that none is overlooked."""

DEVICES, LINES = 1_000, 2**20
ANSWERED = {"JOB": "id", "URL": "url", "CSV": "csvPath", "GROUP": "jobGroupId", "UPLOAD": "uploadId"}
"""What an answer calls that which the next commands need."""

_CARILLON = ".venv/bin/carillon"
_BEGINNING = re.compile(rf"^(?=(?:curl|printf|cd|{re.escape(_CARILLON)}) |[A-Z]+=…)", re.MULTILINE)
_ELSEWHERE = re.compile(r"\b(?:make|aws|seed)\b")
"""What is no command to a deployment that runs, or is the fixture's here."""

_IMPORTS = "import asyncio, os\nfrom datetime import UTC, datetime\nfrom carillon import AsyncCarillon, PushJob\n\n"
_STEP = " " * 4
_RUN = "\nasyncio.run(main(os.environ['APP']))\n"


def commands_of(page: str) -> list[str]:
    """All that the page has to be typed into a deployment that runs, in its order."""
    commands: list[str] = []
    for block in re.findall(r"^```\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL):
        parts = [part.strip() for part in _BEGINNING.split(block)]
        commands += [part for part in parts if _BEGINNING.match(part) and not _ELSEWHERE.search(part)]
    return commands


@dataclass
class Terminal:
    """Somebody's shell, at which they type one command after the other."""

    house: Instance
    folder: Path
    known: dict[str, str]
    answer: str = ""

    async def type(self, command: str) -> None:
        """Type a command, or find in the last answer what the next ones need."""
        if names := re.findall(r"([A-Z]+)=…", command):
            self.known |= {name: json.loads(self.answer)[ANSWERED[name]] for name in names if name in ANSWERED}
            return
        here = command.replace("localhost:8080", self.house.api.removeprefix("http://"))
        here = here.replace(_CARILLON, f"{shlex.quote(sys.executable)} -m services")
        here = here.replace("curl -s", "curl -sS --fail-with-body")
        shell = await asyncio.create_subprocess_exec(
            "bash", "-euc", f"{here}\npwd >{shlex.quote(str(self.folder))}/here",
            cwd=(self.folder / "here").read_text().strip(), env=self._environment(),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said, failed = (text.decode() for text in await asyncio.wait_for(shell.communicate(), 100))
        assert shell.returncode == 0, (command, said, failed)
        self.answer = said

    def _environment(self) -> dict[str, str]:
        paths = {"HOME": str(self.folder), "TMPDIR": str(self.folder), "PYTHONPATH": str(ROOT)}
        return dict(os.environ) | paths | self.known


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[Terminal]:
    async with upper_at(tmp_path / ".carillon") as upper:
        _, house = await upper.start()
        async with customer_of(house) as customer:
            seeded = await seed(customer, house.audience, app="demo", service=APNS, count=DEVICES)
        (tmp_path / "here").write_text(str(tmp_path))
        yield Terminal(house, tmp_path, {"APP": seeded.app_id})


async def test_all_that_a_newcomer_is_told_to_type_works(terminal: Terminal) -> None:
    for page, count in PAGES.items():
        commands = commands_of(page)
        assert len(commands) == count, page
        if page == "docs/uploads.md":
            lines = "".join(f"made-up-{number}\n" for number in range(LINES))
            (terminal.folder / "users.csv").write_text(f"id\n{lines}")
        for command in commands:
            await terminal.type(command)
    assert json.loads(terminal.answer)["lines"] == LINES + 1


async def test_the_programs_of_the_clocks_page_run(terminal: Terminal) -> None:
    page = (ROOT / "docs/clock.md").read_text("utf-8")
    whole, part = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (terminal.folder / "users.csv").write_text("id\nmade-up-1\n")
    await terminal.type(f"{shlex.quote(sys.executable)} -c {shlex.quote(whole)}")
    assert "training-invitations-42 active" in terminal.answer
    client = "AsyncCarillon('http://localhost:8080', user='admin@example.com')"
    inside = f"async with {client} as client:\n{indent(part, _STEP)}"
    program = f"async def main(app_id: str) -> None:\n{indent(inside, _STEP)}"
    await terminal.type(f"{shlex.quote(sys.executable)} -c {shlex.quote(_IMPORTS + program + _RUN)}")
    assert re.search(r"^\d+ of \d+$", terminal.answer, re.MULTILINE)


async def test_the_bus_page_leads_to_events_that_arrive(terminal: Terminal) -> None:
    page = (ROOT / "docs/bus.md").read_text("utf-8")
    receiver, publisher = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (terminal.folder / "receiver.py").write_text(receiver.replace("9000", str(port := free_port())))
    (terminal.folder / "publisher.py").write_text(publisher.replace("http://localhost:8080", terminal.house.api))
    typed = re.findall(r"^```\n((?:export|curl|\.venv|[A-Z]+=).*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(typed) == 12
    # What the page has in terminals of their own goes into the background of this one.
    received = f"python receiver.py >got & trap 'kill %1' EXIT; until curl -so /dev/null 127.0.0.1:{port}; do :; done\n"
    script = "".join(typed).replace("python receiver.py\n", received, 1).replace("9000", str(port))
    script = script.replace(".venv/bin/python", shlex.quote(sys.executable))
    await terminal.type(f"{script}{shlex.quote(sys.executable)} publisher.py")
    got = (terminal.folder / "got").read_text("utf-8")
    for url in ("orders/1", "carillon-test"):
        assert f'{url}"' in got, got
