"""The documentation's commands for a newcomer, typed into `carillon up` in the order of the pages."""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Sink
from aiosmtpd.smtp import AuthResult

from services.commands.seed import seed
from services.embedded.instance import Instance
from services.embedded.processes import free_port
from shared.push.rules.records import APNS
from tests.deploy.manifests import ROOT
from tests.e2e.test_embedded import customer_of, upper_at
from tests.waiting import SECONDS, until

pytestmark = [pytest.mark.e2e, pytest.mark.native]

TABS = ("curl", "CLI", "Python")

DEVICES, LINES = 1_000, 2**20
ANSWERED = {"JOB": "id", "URL": "url", "CSV": "csvPath", "GROUP": "jobGroupId", "UPLOAD": "uploadId"}
ANSWERED |= {"SECRET": "secret"} | dict.fromkeys(("MESSAGE", "SUPPRESSION"), "id")
"""The field of an answer that later commands need."""

_CARILLON, _PYTHON = ".venv/bin/carillon", ".venv/bin/python"
_COMMAND = "|".join(
    re.escape(word) for word in ("curl", "printf", "cat", "split", "export", "unset", _CARILLON, _PYTHON)
)
_BEGINNING = re.compile(rf"^(?=(?:{_COMMAND}) |[A-Z_]+=)", re.MULTILINE)
_ELSEWHERE = re.compile(r"\b(?:make|aws|seed)\b")
"""Commands that need no running deployment, or that the fixture runs here."""

_TAB = re.compile(r"^/// tab \| (\w+)\n(.*?)^///\n", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r'^```(\w*)(?: title="([\w.]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
_RECEIVER = f"{_PYTHON} receiver.py"
"""Commands that have a terminal of their own on the page, and go into the background here."""


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
        self.mail_port = free_port()

    async def ask(self, path: str) -> Any:
        """The API's answer to a GET."""
        async with customer_of(self.house) as customer:
            return await customer.call("GET", path)

    async def list_all(self, path: str) -> list[Any]:
        """All items of a list of the API."""
        async with customer_of(self.house) as customer:
            return await customer.list_all(path)

    async def list_jobs(self) -> list[Any]:
        """The app's jobs, newest first."""
        return await self.list_all(f"/jobs?app={self.variables['APP']}")

    async def do_all(self, steps: list[Step]) -> None:
        for step in steps:
            await self.do(step)

    async def do(self, step: Step) -> None:
        if step.file:
            (self.folder / step.file).write_text(self._here(step.text))
        elif step.is_program:
            client = self.session.get("client")
            await asyncio.to_thread(exec, self._here(step.text), self.session)
            if client and client is not self.session["client"]:
                client.close()
        elif step.text == _RECEIVER:
            listens = "curl -so /dev/null 127.0.0.1:9000"
            await self.type(f"{_RECEIVER} >received 2>&1 & RECEIVER=$!; until {listens}; do sleep 0.1; done")
        elif "--follow" in step.text:
            await self.type(f"setsid bash -c {shlex.quote(step.text)} >pushed 2>&1 & PUSHER=$!")
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

    def leave(self) -> None:
        """Leave Python, and end the receiver."""
        if client := self.session.pop("client", None):
            client.close()
        if receiver := self.variables.get("RECEIVER"):
            os.kill(int(receiver), signal.SIGTERM)
        if pusher := self.variables.get("PUSHER"):
            os.killpg(int(pusher), signal.SIGTERM)

    def _here(self, text: str) -> str:
        """The text with the programs and the ports of this machine."""
        elsewhere = {
            "9000": self._port,
            "localhost:8080": self.house.api.removeprefix("http://"),
            _CARILLON: f"{shlex.quote(sys.executable)} -m services",
            _PYTHON: shlex.quote(sys.executable),
            '"smtp.example.com"': f'"127.0.0.1", "port": {self.mail_port}, "tls": "never"',
            '"password": "…"': '"password": "a-password"',
            "curl -s ": "curl -sS --fail-with-body ",
        }
        words = "|".join(map(re.escape, elsewhere)).replace("9000", r"\b9000\b")
        return re.sub(words, lambda found: elsewhere[found[0]], text)


@pytest.fixture
async def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    async with upper_at(tmp_path / ".carillon") as upper:
        _, house = await upper.start()
        async with customer_of(house) as customer:
            seeded = await seed(customer, house.audience, app="demo", service=APNS, count=DEVICES)
        terminal = Terminal(house, tmp_path, seeded.app_id)
        mail_server = Controller(
            Sink(), "127.0.0.1", terminal.mail_port, ready_timeout=SECONDS,
            authenticator=lambda *_: AuthResult(success=True), auth_require_tls=False,
        )  # fmt: skip
        mail_server.start()
        try:
            yield terminal
        finally:
            mail_server.stop()
            terminal.leave()


async def test_the_front_page_can_be_typed(terminal: Terminal) -> None:
    steps = steps_of("README.md")
    assert len(steps) == 3
    await terminal.do_all(steps)


async def pushes_are_sent(terminal: Terminal) -> None:
    """One to all devices of a locale, one to a file with a stranger in it, and a localized one that is stopped."""

    async def done() -> list[Any]:
        jobs = [job for job in await terminal.list_jobs() if job["state"] == "completed"]
        return jobs if len(jobs) == 2 else []

    jobs = await until(done, "both pushes")
    by_file = next(job for job in jobs if job["csvPath"])
    by_filter = next(job for job in jobs if not job["csvPath"])
    assert 0 < by_filter["sent"] == by_filter["totalTokens"] < DEVICES
    assert (by_file["sent"] + by_file["heldOut"], by_file["unknown"]) == (2, 1)
    assert {zone["status"] for zone in await zones_of_last_group(terminal)} == {"stopped"}


async def feedback_is_counted(terminal: Terminal) -> None:
    path = f"/apps/{terminal.variables['APP']}/jobs/{terminal.variables['JOB']}"

    async def counted() -> dict[str, int]:
        feedbacks: dict[str, int] = (await terminal.ask(path))["feedbacks"]
        return feedbacks if sum(feedbacks.values()) == DEVICES else {}

    assert (await until(counted, "feedback about all devices")).keys() == {"ack", "bad-token"}


async def zones_wait_for_their_hour(terminal: Terminal) -> None:
    zones = await zones_of_last_group(terminal)
    assert {zone["state"] for zone in zones} == {"scheduled"}
    assert len({zone["startsAt"] for zone in zones}) > 24


async def a_campaign_has_begun(terminal: Terminal) -> None:
    async def is_sent() -> bool:
        jobs = [job for job in await terminal.list_jobs() if job.get("schedule")]
        return [(job["schedule"]["key"], job["state"], job["sent"] > 0) for job in jobs] == [
            ("news.weekly", "completed", True)
        ]

    await until(is_sent, "the first job of the campaign")


async def zones_of_last_group(terminal: Terminal) -> list[Any]:
    group = next(job["jobGroupId"] for job in await terminal.list_jobs() if job["localized"])
    zones: list[Any] = (await terminal.ask(f"/apps/{terminal.variables['APP']}/groups/{group}"))["zones"]
    return zones


async def mails_have_their_states(terminal: Terminal) -> None:
    told = {"ana@example.com", "bob+bounce@example.com", "eve@example.com"}
    notes = terminal.folder / ".carillon/sandbox.ndjson"
    await until(lambda: {json.loads(line)["to"] for line in notes.read_text().splitlines()} == told, "all mails")
    await come_to(terminal, "ana@example.com", {("sent", "")})
    await come_to(terminal, "bob+bounce@example.com", {("invalid", "hard-bounce")})
    accounts = await terminal.list_all(f"/apps/{terminal.variables['APP']}/credentials")
    assert {(each["kind"], each["status"]) for each in accounts} == {("sandbox", "active"), ("smtp", "active")}


async def come_to(terminal: Terminal, recipient: str, states: set[tuple[str, str]]) -> None:
    """Wait until these are the states and reasons of all messages to an address."""

    async def have_come() -> bool:
        async with customer_of(terminal.house) as customer:
            path = f"/apps/{terminal.variables['APP']}/messages"
            messages = await customer.call("GET", path, params={"recipient": recipient})
        return {(message["state"], message["reason"]) for message in messages} == states

    await until(have_come, f"{states} of {recipient}")


async def one_mailing_is_stored(terminal: Terminal) -> None:
    jobs = await terminal.list_jobs()
    assert [job["templateName"] for job in jobs].count("invoice") == 1


async def a_message_is_taken_back(terminal: Terminal) -> None:
    await come_to(terminal, "ana@example.com", {("sent", ""), ("failed", "cancelled")})


async def a_recipient_is_forgotten(terminal: Terminal) -> None:
    await come_to(terminal, "eve@example.com", set())


async def addresses_are_suppressed(terminal: Terminal) -> None:
    found = await terminal.list_all(f"/apps/{terminal.variables['APP']}/suppressions")
    assert {(each["address"], each["cause"]) for each in found} == {
        ("bob+bounce@example.com", "bounce"),
        ("fay@example.com", "unsubscribe"),
        ("gil@example.com", "unsubscribe"),
    }


async def the_webhook_comes(terminal: Terminal) -> None:
    received = terminal.folder / "received"
    await until(lambda: '{"report":"sales"}' in received.read_text().replace(" ", ""), "the webhook")


async def an_instant_is_left(terminal: Terminal) -> None:
    schedule = await terminal.ask("/schedules/invitations-42")
    assert (schedule["state"], [at[:13] for at in schedule["next"]]) == ("active", ["2030-12-24T14"])


async def the_whole_file_arrives(terminal: Terminal) -> None:
    job = (await terminal.list_jobs())[0]
    assert (job["state"], bool(job["csvPath"])) == ("scheduled", True)
    stored = (terminal.folder / ".carillon").rglob(job["csvPath"].rpartition("/")[2])
    assert [path.read_bytes() for path in stored] == [(terminal.folder / "users.csv").read_bytes()]


async def the_first_event_comes(terminal: Terminal) -> None:
    received = terminal.folder / "received"
    await until(lambda: 'orders/1"' in received.read_text(), "the first event")


async def events_come(terminal: Terminal) -> None:
    received = terminal.folder / "received"
    urls = ('orders/1"', 'carillon-test"')
    await until(lambda: all(url in received.read_text() for url in urls), "the events")
    assert (await terminal.ask("/bus/topics/stock"))["description"] == "Items that are left."


async def events_come_again(terminal: Terminal) -> None:
    received = terminal.folder / "received"

    async def is_replayed() -> bool:
        return [each["state"] for each in await terminal.list_all("/bus/subscriptions/orders/replays")] == ["done"]

    await until(is_replayed, "the replay")
    await until(lambda: received.read_text().count('orders/1"') >= 2, "the first event again")


async def own_events_are_subscribed(terminal: Terminal) -> None:
    topics = {each["key"]: set(each["topics"]) for each in await terminal.list_all("/bus/subscriptions")}
    assert topics["ended"] == {"carillon_jobs", "carillon_schedules"}
    assert topics["notices"] == {"carillon_notices"}


async def the_client_of_routemaster_is_subscribed(terminal: Terminal) -> None:
    (subscription,) = json.loads(terminal.answer)
    assert (subscription["subscriber"], subscription["topics"]) == ("reader-1", ["widgets"])


@dataclass(frozen=True)
class Page:
    name: str
    steps: tuple[int, int, int]
    """How many a reader of each tab types, so that none is overlooked."""
    holds: Callable[[Terminal], Awaitable[None]]
    """Checks what the page promises, after its steps."""


SENDING = (
    Page("first-push", (15, 10, 6), pushes_are_sent),
    Page("writing-a-pusher", (5, 5, 5), feedback_is_counted),
    Page("localized-pushes", (4, 3, 1), zones_wait_for_their_hour),
    Page("weekly-campaign", (5, 5, 3), a_campaign_has_begun),
    Page("first-mail", (15, 10, 9), mails_have_their_states),
    Page("messages", (1, 1, 1), one_mailing_is_stored),
    Page("single-messages", (4, 3, 1), a_message_is_taken_back),
    Page("ledger", (3, 3, 2), a_recipient_is_forgotten),
    Page("unsubscribing", (6, 5, 3), addresses_are_suppressed),
    Page("first-webhook", (8, 6, 5), the_webhook_comes),
    Page("clock", (4, 4, 2), an_instant_is_left),
    Page("uploads", (7, 1, 1), the_whole_file_arrives),
)
BUS = (
    Page("first-event", (8, 6, 6), the_first_event_comes),
    Page("bus", (9, 11, 4), events_come),
    Page("bus-receivers", (6, 6, 5), events_come_again),
    Page("events", (2, 2, 2), own_events_are_subscribed),
    Page("routemaster-api", (6, 6, 6), the_client_of_routemaster_is_subscribed),
)


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("pages", [SENDING, BUS], ids=["sending", "bus"])
async def test_the_pages_lead_to_what_they_promise(terminal: Terminal, pages: tuple[Page, ...], tab: str) -> None:
    for page in pages:
        steps = steps_of(f"docs/{page.name}.md", tab)
        assert len(steps) == page.steps[TABS.index(tab)], (page, [step.text for step in steps])
        if page.name == "uploads":
            lines = "".join(f"made-up-{number}\n" for number in range(LINES))
            (terminal.folder / "users.csv").write_text(f"id\n{lines}")
        await terminal.do_all(steps)
        await page.holds(terminal)


async def test_a_view_over_a_table_of_ones_own_gets_a_localized_push(terminal: Terminal) -> None:
    page = "docs/your-own-devices.md"
    statements = [block for language, _, block in _BLOCK.findall((ROOT / page).read_text("utf-8")) if language == "sql"]
    connection = await asyncpg.connect(terminal.house.audience)
    told = [await connection.fetch(each) for block in statements for each in block.split(";\n") if each.strip()]
    await connection.close()
    assert ["-0330", "+0000", "+0530"] in [[row.get("tz") for row in rows] for rows in told]
    *first, preview, create = steps_of(page)
    await terminal.do_all(first)
    await terminal.do(preview)
    for zone in ("-0300", "+0100", "+0530"):
        assert re.search(rf"{re.escape(zone)}  .* 1$", terminal.answer, re.MULTILINE), terminal.answer
    assert "rest" not in terminal.answer
    await terminal.do(create)

    past = create.text.replace("create", "create --quiet").replace("2030-12-24", "2020-12-24")
    await terminal.do(Step(past))
    app = next(each["id"] for each in await terminal.list_all("/apps") if each["name"] == "shop")
    path = f"/apps/{app}/groups/{terminal.answer.strip()}"

    async def is_sent() -> bool:
        return bool((await terminal.ask(path))["sent"] == 3)

    await until(is_sent, "a record for each device")


@pytest.mark.parametrize("page", [page.name for page in SENDING + BUS])
def test_each_choice_of_a_page_has_every_tab(page: str) -> None:
    named = [found[1] for found in _TAB.finditer((ROOT / f"docs/{page}.md").read_text("utf-8"))]
    assert named == list(TABS) * (len(named) // len(TABS))
