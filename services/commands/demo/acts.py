"""The three acts of `carillon demo`: pushes, messages and events, each with a process that is killed."""

import asyncio
import re
import secrets
import time
import uuid
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import click
import msgspec
from msgspec import Struct
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from services.commands.demo.stage import Victim, becomes_true, prove
from services.commands.seed import CONTEXT, TEMPLATE, Customer, Object, Seeded
from shared.core.errors import CarillonError
from shared.drivers.kafka import Stream
from shared.drivers.postgres import devices
from shared.push.rules.feedback import ACK
from shared.push.rules.records import topic_name
from shared.runtime.serving import HttpServer

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


Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
EVENTS, REFUSALS = 1_000, 3
_AT_ONCE = 20
_MOST, _TIMEOUT_MS = 100, 200
_EVENT_SECONDS = 60.0


class BusReceiver:
    """A receiver that refuses its first requests, and keeps what it accepts. An event is known by its URL."""

    def __init__(self, name: str, *, refusals: int = 0) -> None:
        self.name = name
        self.refused = 0
        self.bodies: dict[str, set[bytes]] = {}
        self.events: list[str] = []
        self.first_at = self.last_at = 0.0
        self._refusals = refusals

    def take(self, delivery_id: str, body: bytes) -> int:
        """The status that a delivery is answered with."""
        self.bodies.setdefault(delivery_id, set()).add(body)
        if self.refused < self._refusals:
            self.refused += 1
            return 503
        self.events += [event["url"] for event in msgspec.json.decode(body)]
        self.last_at = time.monotonic()
        self.first_at = self.first_at or self.last_at
        return 204


async def publish_and_receive(api: str, root_key: str) -> bool:
    well, failing = receivers = BusReceiver("healthy"), BusReceiver("failing", refusals=REFUSALS)
    topic = "widgets_" + "".join(secrets.choice(ascii_lowercase) for _ in range(8))  # the last demo's has an owner
    async with AsyncExitStack() as opened:
        url = await opened.enter_async_context(_listen(*receivers))
        root = await opened.enter_async_context(Customer(api, _basic(root_key)))
        named = dict[str, Customer]()
        for name in (well.name, failing.name, "publisher"):
            token = (await root.call("POST", "/api_tokens", json={"name": name}))["token"]
            named[name] = await opened.enter_async_context(Customer(api, _basic(token)))
        for each in receivers:
            wish = {"topics": [topic], "callback": f"{url}/{each.name}", "max": _MOST, "timeout": _TIMEOUT_MS}
            await named[each.name].call("POST", "/subscriber", json=wish)
        await _publish_all(named["publisher"], topic)
        published = time.monotonic()
        in_time = await becomes_true(
            lambda: all(len(set(each.events)) >= EVENTS for each in receivers), seconds=_EVENT_SECONDS
        )
        for each in receivers:
            await named[each.name].call("DELETE", "/subscriber")  # they listen no longer from now on
    return check_events(well, failing, published=published, in_time=in_time)


def check_events(well: BusReceiver, failing: BusReceiver, *, published: float, in_time: bool) -> bool:
    """Show the promises of this act; `published` is when the last event was. Returns whether all were kept."""
    receivers = (well, failing)
    took = {each.name: f"{max(each.last_at - published, 0):.1f} s after the last was published" for each in receivers}
    proofs = [
        prove(
            f"each of {EVENTS:,} events came to both receivers, in one delivery each",
            (not in_time, "not all events came in time"),
            *_checks(well),
            *_checks(failing),
        ),
        prove(
            f"a delivery that was refused came again with the same body: {failing.refused:,} refusals, "
            f"{len(failing.events):,} events {took[failing.name]}",
            (failing.refused != REFUSALS, "the failing receiver has refused nothing"),
            *(
                (
                    any(len(bodies) > 1 for bodies in each.bodies.values()),
                    f"a delivery to the {each.name} receiver had another body the second time",
                )
                for each in receivers
            ),
        ),
        prove(
            f"the healthy receiver did not wait for the failing one: {len(well.events):,} events {took[well.name]}",
            (well.first_at >= failing.first_at, "the healthy receiver had to wait for the failing one"),
        ),
    ]
    return all(proofs)


def _checks(receiver: BusReceiver) -> list[tuple[bool, str]]:
    known, twice = len(set(receiver.events)), len(receiver.events) - len(set(receiver.events))
    return [
        (known != EVENTS, f"{known:,} of {EVENTS:,} events came to the {receiver.name} receiver"),
        (twice > 0, f"{twice:,} events came in two deliveries to the {receiver.name} receiver"),
    ]


@asynccontextmanager
async def _listen(*receivers: BusReceiver) -> AsyncIterator[str]:
    """The URL at which they listen, each below its name."""
    named = {f"/{receiver.name}": receiver for receiver in receivers}

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        delivery_id = dict(scope["headers"]).get(b"webhook-id", b"").decode()
        status = named[scope["path"]].take(delivery_id, body)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body"})

    server = HttpServer("receivers", app, host="127.0.0.1", port=0, lifespan="off")
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def _publish_all(publisher: Customer, topic: str) -> None:
    numbers = iter(range(EVENTS))

    async def publish() -> None:
        for number in numbers:
            event = {"type": "create", "url": f"https://shop.example.com/widgets/{number}"}
            await publisher.call("POST", f"/topics/{topic}", json=event)

    await asyncio.gather(*(publish() for _ in range(_AT_ONCE)))


def _basic(token: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{token}:x'.encode()).decode()}"}
