"""The demo's second act: messages through the sandbox, a provider account that calls nobody, and a death half-way.

The process dies at the worst moment: the provider has some messages, and nothing about that is stored. The next process
sends them again under the same ids, by which the sandbox recognizes them.
"""

from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from services.commands.demo.display import Proof, prove
from services.commands.demo.victim import Victim
from services.commands.seed.customer import Customer, Object

MAILS, RATE = 300, 100
TEMPLATE, CREDENTIAL = "letter", "demo-mail"
FAULT = "message.before_record@3=kill"
"""Kill the process when it has answers for the third time and is about to store them."""

_PATIENCE_SECONDS = 90.0
_SECOND = timedelta(seconds=1)


class Arrival(Struct, frozen=True):
    """A call as the sandbox has noted it: `key` is the message's id, and the attempt."""

    at: datetime
    key: str

    @property
    def message(self) -> str:
        """The message's id."""
        return self.key.partition("~")[0]


class MailingStory(Struct, frozen=True, kw_only=True):
    """The job's last answer, the calls in their order, and whether a process died on the way."""

    job: Object
    calls: list[Arrival]
    in_time: bool
    killed: bool

    @property
    def messages(self) -> Counter[str]:
        """How often each message was called."""
        return Counter(call.message for call in self.calls)

    @property
    def most_in_a_second(self) -> int:
        """The most calls within any second."""
        moments = sorted(call.at for call in self.calls)
        return max((sum(first <= later < first + _SECOND for later in moments) for first in moments), default=0)


async def send_mails(customer: Customer, victim: Victim, app_id: str, sandbox: Path) -> MailingStory:
    """Send, and start the victim again after its death. Raises `Refused` or `Unavailable`."""
    await customer.templates(app_id, [{"name": TEMPLATE, "locale": "en", "body": {"text": "Dear {{name}}"}}])
    account = {"name": CREDENTIAL, "kind": "sandbox", "rate": RATE, "testRecipient": "team@example.com"}
    await customer.credential(app_id, account)
    path = await customer.upload(_people())
    begin = len(_read_calls(sandbox))
    job = await customer.start(app_id, TEMPLATE, {"credential": CREDENTIAL, "csvPath": path})

    async def poll() -> bool:
        nonlocal job
        job = await customer.job(app_id, f"{job['id']}?exact=true")
        return bool(job["completedAt"])

    async def on_death() -> None:
        called = len(_read_calls(sandbox)) - begin
        await victim.revive(
            lambda line: click.echo(f"  {line}"), f"before it stored the provider's answers, after {called:,} calls"
        )

    in_time, killed = await victim.watch(poll, on_death, seconds=_PATIENCE_SECONDS)
    return MailingStory(job=job, calls=_read_calls(sandbox)[begin:], in_time=in_time, killed=killed)


def proofs(story: MailingStory) -> list[Proof]:
    """The promises of this act, each with the faults that were found."""
    counts, messages, most = story.job["messages"], story.messages, story.most_in_a_second
    return [
        prove(
            f"all {MAILS:,} mails arrived",
            (not story.in_time, "the job of mails did not end in time"),
            (not story.killed, "no process was killed while the mails were sent"),
            (len(messages) != MAILS, f"{len(messages):,} of {MAILS:,} mails arrived"),
        ),
        prove(
            f"never more than {RATE:,} calls within a second: {most:,} at most",
            (most > RATE, f"{most:,} calls arrived within one second, {RATE:,} are allowed"),
        ),
        prove(
            f"the ledger adds up: sent {counts['sent']:,}, unsent {counts['unsent']:,}, unknown {counts['unknown']:,}; "
            f"{counts['repeated']:,} were called again under the same id, as their answers were lost",
            (counts["sent"] != MAILS or counts["unsent"] != 0, f"the ledger does not add up: {counts}"),
            (
                not MAILS <= len(story.calls) <= MAILS + counts["repeated"],
                f"{len(story.calls):,} calls arrived, {counts['repeated']:,} of which may be second ones",
            ),
        ),
    ]


def _read_calls(sandbox: Path) -> list[Arrival]:
    """The calls that the sandbox has noted so far. Another process writes the file, so the last line may be cut."""
    noted = sandbox.read_bytes() if sandbox.exists() else b""
    return [msgspec.json.decode(line, type=Arrival) for line in noted.split(b"\n")[:-1]]


def _people() -> bytes:
    rows = (f"person-{number}@example.com,Person {number}\n" for number in range(1, MAILS + 1))
    return ("recipient,name\n" + "".join(rows)).encode()
