"""The demo's second act: messages by the provider that is none, the sandbox, and a worker that fails in the middle.

The worker fails at the worst moment: some messages are called, and nothing is written of that. Another attempt finds
what is open, and goes on. The sandbox knows a message by its id, so what it gets again it has once.
"""

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from services.commands.seed.customer import Customer, Object
from shared.runtime import faults

MAILS, RATE = 300, 100
TEMPLATE, CREDENTIAL = "letter", "demo-mail"
POLL_SECONDS = 0.25
FAILURE = "message.before_record@3=raise"
"""What befalls the worker: it has answers for the third time, and is about to write them down."""

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
    """What was seen: the job's last answer, the calls in their order, and whether the worker did fail."""

    job: Object
    calls: list[Arrival]
    in_time: bool
    failed: bool

    @property
    def messages(self) -> Counter[str]:
        """How often each message was called."""
        return Counter(call.message for call in self.calls)

    @property
    def most_in_a_second(self) -> int:
        """The most calls within any second."""
        moments = sorted(call.at for call in self.calls)
        return max((sum(first <= later < first + _SECOND for later in moments) for first in moments), default=0)


async def send_mails(customer: Customer, app_id: str, sandbox: Path) -> MailingStory:
    """Send, and have the worker fail. Raises `Refused` or `Unavailable`."""
    await customer.templates(app_id, [{"name": TEMPLATE, "locale": "en", "body": {"text": "Dear {{name}}"}}])
    account = {"name": CREDENTIAL, "kind": "sandbox", "rate": RATE, "testRecipient": "team@example.com"}
    await customer.credential(app_id, account)
    path = await customer.upload(_people())
    begin = len(await asyncio.to_thread(sandbox.read_bytes))
    faults.arm(FAILURE, quietly=True)
    try:
        job, in_time = await _follow(customer, app_id, path)
        failed = not faults.are_armed()
    finally:
        faults.arm("")
    noted = (await asyncio.to_thread(sandbox.read_bytes))[begin:]
    calls = [msgspec.json.decode(line, type=Arrival) for line in noted.splitlines()]
    return MailingStory(job=job, calls=calls, in_time=in_time, failed=failed)


def find_faults(story: MailingStory) -> list[str]:
    """A sentence for each promise that was not kept."""
    counts, messages, most = story.job["messages"], story.messages, story.most_in_a_second
    checks = [
        (not story.in_time, "the job of mails did not end in time"),
        (not story.failed, "no worker failed in the middle of the mails"),
        (len(messages) != MAILS, f"{len(messages):,} of {MAILS:,} mails arrived"),
        (counts["sent"] != MAILS or counts["unsent"] != 0, f"the ledger does not add up: {counts}"),
        (
            not MAILS <= len(story.calls) <= MAILS + counts["repeated"],
            f"{len(story.calls):,} calls arrived, {counts['repeated']:,} of which may be second ones",
        ),
        (most > RATE, f"{most:,} calls arrived within one second, {RATE:,} are allowed"),
    ]  # fmt: skip
    return [sentence for wrong, sentence in checks if wrong]


def summarize(story: MailingStory) -> str:
    """What happened, as a text for people."""
    counts = story.job["messages"]
    lines = {
        "mails": f"{len(story.messages):,} of {MAILS:,} arrived, at most {story.most_in_a_second:,} within a second",
        "ledger": f"sent {counts['sent']:,}, unsent {counts['unsent']:,}, unknown {counts['unknown']:,}",
        "open then": f"{counts['repeated']:,}, of which nobody could tell whether they were called: they were again",
    }
    return "\n".join(f"  {name:<13} {text}" for name, text in lines.items())


def _people() -> bytes:
    rows = (f"person-{number}@example.com,Person {number}\n" for number in range(1, MAILS + 1))
    return ("recipient,name\n" + "".join(rows)).encode()


async def _follow(customer: Customer, app_id: str, path: str) -> tuple[Object, bool]:
    """The job at its end, and whether it came to that in time."""
    job = await customer.start(app_id, TEMPLATE, {"credential": CREDENTIAL, "csvPath": path})
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not job["completedAt"]:
                await asyncio.sleep(POLL_SECONDS)
                job = await customer.job(app_id, job["id"])
    except TimeoutError:
        return job, False
    return await customer.job(app_id, f"{job['id']}?exact=true"), True
