"""The demo's first act: one job to all devices, seen as a customer sees it, and a process that dies half-way."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from services.commands.demo.display import Display, Moment, Proof, display, prove
from services.commands.demo.receiver import Receiver
from services.commands.demo.victim import Victim
from services.commands.seed import TEMPLATE, Seeded, Target, job_body, seed
from services.commands.seed.customer import Customer, Object
from shared.audience import devices
from shared.domain.errors import CarillonError
from shared.domain.push.records import APNS
from shared.domain.push.topics import topic_name
from shared.stream import Stream

APP = "demo"
_SETTLE_SECONDS = 0.5  # by then the receiver has read all that a dead process has sent


class PushStory(Struct, frozen=True, kw_only=True):
    """The job's last answer, the records of each token and the receiver's answers. Times are in seconds after the
    call that started the job; `killed` is whether a process died on the way."""

    seeded: Seeded
    job: Object
    tokens: Counter[str]
    answers: Counter[str]
    first_record: float
    last_record: float
    counted: float
    in_time: bool
    killed: bool


def batch_size(count: int) -> int:
    """About twenty batches, within what the setting allows."""
    return min(max(count // 20, 1_000), 10_000)


def fault(count: int) -> str:
    """Kill the process in the middle of the transaction that is half-way."""
    return f"send.in_transaction@{max(count // batch_size(count) // 2, 1)}=kill"


async def send_pushes(
    target: Target, victim: Victim, next_fault: str, stream: Stream, topic_template: str, count: int
) -> PushStory:
    """Seed, send and watch; start the victim again after its death, with the next fault armed. Raises `Refused` or
    `Unavailable`."""
    async with Customer(target.api, target.headers) as customer:
        seeded = await seed(customer, target.audience, app=APP, service=APNS, count=count)
        job_id = str(uuid.uuid4())
        receiver = Receiver(stream, topic_name(topic_template, APP, APNS), job_id)
        async with _receive_meanwhile(receiver):
            with display(seeded.devices) as shown:
                return await _watch_job(customer, seeded, job_id, receiver, shown, victim, next_fault)


async def _watch_job(
    customer: Customer,
    seeded: Seeded,
    job_id: str,
    receiver: Receiver,
    shown: Display,
    victim: Victim,
    next_fault: str,
) -> PushStory:
    called = time.monotonic()
    job = await customer.start(seeded.app_id, TEMPLATE, {"id": job_id, **job_body(seeded.service)})

    async def poll() -> bool:
        nonlocal job
        job = await customer.job(seeded.app_id, job_id)
        shown.show(Moment(job["sent"], receiver.tokens.total(), sum(job["feedbacks"].values())))
        return _is_finished(job, receiver)

    async def on_death() -> None:
        await asyncio.sleep(_SETTLE_SECONDS)
        progress = f"{receiver.tokens.total():,} of {seeded.devices:,}"
        await victim.revive(shown.say, f"in the middle of a batch, at {progress} records", next_fault)

    in_time, killed = await victim.watch(poll, on_death, seconds=_patience(seeded.devices))
    return PushStory(
        seeded=seeded,
        job=job,
        tokens=receiver.tokens,
        answers=receiver.answers,
        first_record=receiver.first_at - called,
        last_record=receiver.last_at - called,
        counted=time.monotonic() - called,
        in_time=in_time,
        killed=killed,
    )


def proofs(story: PushStory) -> list[Proof]:
    """The promises of this act, each with the faults that were found."""
    total, job = story.seeded.devices, story.job
    expected = {devices.token(number) for number in range(1, total + 1)}
    missing = len(expected - story.tokens.keys())
    strange = len(story.tokens.keys() - expected)
    repeated = sum(count > 1 for count in story.tokens.values())
    return [
        prove(
            f"{total:,} devices, and exactly one record for each",
            (not story.in_time, "the job, or the count of its answers, did not end in time"),
            (not story.killed, "no process was killed while the job ran"),
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
                job["feedbacks"] != dict(story.answers),
                f"the job counted {job['feedbacks']}, the receiver answered {dict(story.answers)}",
            ),
        ),
    ]


def summarize(story: PushStory) -> str:
    """The times of the job, as a line."""
    if not story.tokens:
        return "no record arrived"
    return (
        f"first record after {story.first_record:.2f} s, last after {story.last_record:.2f} s, "
        f"all counted after {story.counted:.2f} s"
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items(), key=lambda item: -item[1])) or "none"


def _is_finished(job: Object, receiver: Receiver) -> bool:
    """Whether the job is completed, all that it sent has come, and all answers to that are counted on it."""
    answered = receiver.answers.total()
    return bool(job["completedAt"] and answered >= job["sent"] and sum(job["feedbacks"].values()) >= answered)


def _patience(devices: int) -> float:
    return 90.0 + devices / 1000


@asynccontextmanager
async def _receive_meanwhile(receiver: Receiver) -> AsyncIterator[None]:
    """Let the receiver read while the block runs. Raises `Unavailable` where the stream could not be read or answered
    to."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(receiver.run(), name="receiver")
            yield
            task.cancel()
    except* CarillonError as failures:
        raise failures.exceptions[0] from None
