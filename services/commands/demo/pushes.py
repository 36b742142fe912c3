"""The demo's first act: one job to all devices, seen as a customer sees it, and a process that dies half-way.

The receiver reads the records as Pusher would, and answers on the feedback topic. It reports most pushes as delivered,
and some as failed; the token decides which, so that the counts can be checked.
"""

import asyncio
import re
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import click
import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.commands.demo.stage import Victim, prove
from services.commands.seed import CONTEXT, TEMPLATE, Customer, Object, Seeded
from shared.audience import devices
from shared.domain.errors import CarillonError
from shared.domain.push.feedback import ACK
from shared.domain.push.topics import topic_name
from shared.stream import Stream

APP = "demo"
_COLUMNS = (TextColumn("  {task.description:<16}"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn())
_READ_SECONDS = 0.25
_SETTLE_SECONDS = 0.5  # by then the receiver has read all that a dead process has sent
_UNREGISTERED, _BAD = 15, 5
"""How many devices of a thousand are unregistered, and how many have a bad token."""


def batch_size(count: int) -> int:
    """About twenty batches, within what the setting allows."""
    return min(max(count // 20, 1_000), 10_000)


def fault(count: int) -> str:
    """Kill the process in the middle of the transaction that is half-way."""
    return f"send.in_transaction@{max(count // batch_size(count) // 2, 1)}=kill"


async def send_pushes(customer: Customer, seeded: Seeded, victim: Victim, next_fault: str, stream: Stream) -> bool:
    """Send and watch; start the victim again after its death, with the next fault armed. Returns whether all promises
    were kept. Raises `Refused` or `Unavailable`."""
    job: Object = {"id": str(uuid.uuid4()), "service": seeded.service, "context": CONTEXT}
    topic = topic_name(victim.settings.stream.topic_template, seeded.app, seeded.service)
    receiver = Receiver(stream, topic, job["id"])
    async with _receive_meanwhile(receiver):
        with Progress(*_COLUMNS) as shown:
            bars = [
                shown.add_task(name, total=seeded.devices) for name in ("records sent", "received", "answers counted")
            ]
            called = time.monotonic()
            job = await customer.start(seeded.app_id, TEMPLATE, job)

            async def poll() -> bool:
                nonlocal job
                job = await customer.job(seeded.app_id, job["id"])
                counted, answered = sum(job["feedbacks"].values()), receiver.answers.total()
                for bar, done in zip(bars, (job["sent"], receiver.tokens.total(), counted), strict=True):
                    shown.update(bar, completed=done)
                return bool(job["completedAt"] and answered >= job["sent"] and counted >= answered)

            async def on_death() -> None:
                await asyncio.sleep(_SETTLE_SECONDS)
                progress = f"{receiver.tokens.total():,} of {seeded.devices:,}"
                say = partial(shown.console.print, highlight=False, soft_wrap=True)
                await victim.revive(say, f"in the middle of a batch, at {progress} records", next_fault)

            in_time, killed = await victim.watch(poll, on_death, seconds=90.0 + seeded.devices / 1000)
    if receiver.tokens:
        first, last, counted = (at - called for at in (receiver.first_at, receiver.last_at, time.monotonic()))
        click.echo(f"  first record after {first:.2f} s, last after {last:.2f} s, all counted after {counted:.2f} s")
    tokens, answers = receiver.tokens, receiver.answers
    return check_pushes(seeded.devices, job, tokens, answers, in_time=in_time, killed=killed)


def check_pushes(
    total: int, job: Object, tokens: Counter[str], answers: Counter[str], *, in_time: bool, killed: bool
) -> bool:
    """Show the promises of this act, by the number of devices, the job's last answer, the records of each token and the
    receiver's answers. Returns whether all were kept."""
    expected = {devices.token(number) for number in range(1, total + 1)}
    missing, strange = len(expected - tokens.keys()), len(tokens.keys() - expected)
    repeated = sum(count > 1 for count in tokens.values())
    proofs = [
        prove(
            f"{total:,} devices, and exactly one record for each",
            (not in_time, "the job, or the count of its answers, did not end in time"),
            (not killed, "no process was killed while the job ran"),
            (missing > 0, f"{missing:,} devices got no record"),
            (repeated > 0, f"{repeated:,} devices got more than one record"),
            (strange > 0, f"{strange:,} records went to devices that do not exist"),
        ),
        prove(
            f"the job's totals are exact: {_counts(job['locales'])}",
            (job["sent"] != total, f"the job says that it sent {job['sent']:,} of {total:,} records"),
            (sum(job["locales"].values()) != total, f"the job's locales do not add up to {total:,}: {job['locales']}"),
        ),
        prove(
            f"each answer of the receiver was counted once: {_counts(job['feedbacks'])}",
            (
                job["feedbacks"] != dict(answers),
                f"the job counted {job['feedbacks']}, the receiver answered {dict(answers)}",
            ),
        ),
    ]
    return all(proofs)


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


class Receiver:
    """The receiver of one job. It keeps how many records each device got, what it answered, and when the first and the
    last record came."""

    def __init__(self, stream: Stream, topic: str, job_id: str) -> None:
        self.tokens: Counter[str] = Counter()
        self.answers: Counter[str] = Counter()
        self.first_at = 0.0
        self.last_at = 0.0
        self._stream = stream
        self._topic = topic
        self._job_id = job_id

    async def run(self) -> None:
        async with self._stream.reader(re.escape(self._topic), group="demo-receiver") as reader:
            while True:
                for chunk in await reader.read(_READ_SECONDS):
                    await self._receive([msgspec.json.decode(value) for value in chunk.values if value is not None])

    async def _receive(self, records: list[Object]) -> None:
        """Answer to the records of this job, in the shape of Pusher's feedback."""
        outcomes, answers = Counter[str](), list[bytes]()
        for record in records:
            token, metadata = record["DeviceToken"], record["metadata"]
            if metadata["jobId"] != self._job_id:
                continue
            answer: dict[str, Any] = {"DeviceToken": token, "ApnsID": metadata["muid"], "metadata": metadata}
            if (reason := failure_of(token)) is not None:
                answer |= {"Err": {"Key": reason, "Description": reason}}
            self.tokens[token] += 1
            outcomes[reason or ACK] += 1
            answers.append(msgspec.json.encode(answer))
        if answers:
            self.last_at = time.monotonic()
            self.first_at = self.first_at or self.last_at
            await self._stream.publish(f"{self._topic}-feedbacks", answers)
            self.answers.update(outcomes)


def failure_of(token: str) -> str | None:
    """The reason why a push to this device fails; `None` if it is delivered."""
    place = int(token[:8], 16) % 1000
    if place < _UNREGISTERED:
        return "unregistered"
    return "bad-device-token" if place < _UNREGISTERED + _BAD else None


@asynccontextmanager
async def _receive_meanwhile(receiver: Receiver) -> AsyncIterator[None]:
    """Let the receiver read while the block runs. Raises `Unavailable` if the stream cannot be read or written."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(receiver.run(), name="receiver")
            yield
            task.cancel()
    except* CarillonError as failures:
        raise failures.exceptions[0] from None
