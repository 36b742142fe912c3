"""The demo's second act: messages through the sandbox, a provider account that calls nobody, and a death half-way.

The process dies at the worst moment: the provider has some messages, and nothing about that is stored. The next process
sends them again under the same ids, by which the sandbox recognizes them.
"""

from datetime import datetime, timedelta
from pathlib import Path

import click
import msgspec
from msgspec import Struct

from services.commands.demo.stage import Victim, prove
from services.commands.seed import Customer

MAILS, RATE = 300, 100
FAULT = "message.before_record@3=kill"
"""Kill the process when it has answers for the third time and is about to store them."""

_TEMPLATE, _CREDENTIAL = "letter", "demo-mail"
_MAIL_SECONDS = 90.0
_SECOND = timedelta(seconds=1)


class Arrival(Struct, frozen=True):
    """A call as the sandbox has noted it: `key` is the message's id, and the attempt."""

    at: datetime
    key: str


async def send_mails(customer: Customer, victim: Victim, app_id: str) -> bool:
    """Send, and start the victim again after its death. Returns whether all promises were kept. Raises as `Customer`
    and `Victim`."""
    sandbox = Path(victim.settings.providers.sandbox_file)
    template = {"name": _TEMPLATE, "locale": "en", "body": {"text": "Dear {{name}}"}}
    await customer.make_once(f"/apps/{app_id}/templates", template, "name", "locale")
    account = {"name": _CREDENTIAL, "kind": "sandbox", "rate": RATE, "testRecipient": "team@example.com"}
    await customer.make_once(f"/apps/{app_id}/credentials", account, "name")
    rows = "".join(f"person-{number}@example.com,Person {number}\n" for number in range(1, MAILS + 1))
    place = await customer.call("GET", "/uploadurl")
    await customer.call("PUT", place["url"], content=f"recipient,name\n{rows}".encode())
    begin = len(_read_calls(sandbox))
    job = await customer.start(app_id, _TEMPLATE, {"credential": _CREDENTIAL, "csvPath": place["csvPath"]})

    async def poll() -> bool:
        nonlocal job
        job = await customer.job(app_id, job["id"], exact="true")
        return bool(job["completedAt"])

    async def on_death() -> None:
        called = len(_read_calls(sandbox)) - begin
        await victim.revive(click.echo, f"before it stored the provider's answers, after {called:,} calls")

    in_time, killed = await victim.watch(poll, on_death, seconds=_MAIL_SECONDS)
    return check_mails(job["messages"], _read_calls(sandbox)[begin:], in_time=in_time, killed=killed)


def check_mails(counts: dict[str, int], arrived: list[Arrival], *, in_time: bool, killed: bool) -> bool:
    """Show the promises of this act, by the job's counts and the provider's. Returns whether all were kept."""
    calls, messages = len(arrived), len({call.key.partition("~")[0] for call in arrived})
    moments = sorted(call.at for call in arrived)
    most = max((sum(first <= later < first + _SECOND for later in moments) for first in moments), default=0)
    proofs = [
        prove(
            f"all {MAILS:,} mails arrived",
            (not in_time, "the job of mails did not end in time"),
            (not killed, "no process was killed while the mails were sent"),
            (messages != MAILS, f"{messages:,} of {MAILS:,} mails arrived"),
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
                not MAILS <= calls <= MAILS + counts["repeated"],
                f"{calls:,} calls arrived, {counts['repeated']:,} of which may be second ones",
            ),
        ),
    ]
    return all(proofs)


def _read_calls(sandbox: Path) -> list[Arrival]:
    """The calls that the sandbox has noted so far. Another process writes the file, so the last line may be cut."""
    noted = sandbox.read_bytes() if sandbox.exists() else b""
    return [msgspec.json.decode(line, type=Arrival) for line in noted.split(b"\n")[:-1]]
