"""What the demo does beside the services: one job, from nothing to counted answers, seen as a customer sees it."""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from services.commands.demo.display import Display, Moment, display
from services.commands.demo.receiver import Receiver
from services.commands.seed import TEMPLATE, Seeded, Target, job_body, seed
from services.commands.seed.customer import Customer, Object
from shared.domain.errors import CarillonError
from shared.domain.push.records import APNS
from shared.domain.push.topics import topic_name
from shared.stream import Stream

APP = "demo"
POLL_SECONDS = 0.25


class Story(Struct, frozen=True, kw_only=True):
    """What the demo saw. Times are in seconds after the call that started the job; `job` is its last answer."""

    seeded: Seeded
    job: Object
    tokens: Counter[str]
    answers: Counter[str]
    first_record: float
    last_record: float
    counted: float
    in_time: bool


async def tell(target: Target, stream: Stream, topic_template: str, count: int) -> Story:
    """Seed, send and watch. Raises `Refused` or `Unavailable`."""
    async with Customer(target.api, target.headers) as customer:
        seeded = await seed(customer, target.audience, app=APP, service=APNS, count=count)
        job_id = str(uuid.uuid4())
        receiver = Receiver(stream, topic_name(topic_template, APP, APNS), job_id)
        async with _receive_meanwhile(receiver):
            with display(seeded.devices) as shown:
                return await _watch_job(customer, seeded, job_id, receiver, shown)


async def _watch_job(customer: Customer, seeded: Seeded, job_id: str, receiver: Receiver, shown: Display) -> Story:
    called = time.monotonic()
    job = await customer.start(seeded.app_id, TEMPLATE, {"id": job_id, **job_body(seeded.service)})
    in_time = True
    try:
        async with asyncio.timeout(_patience(seeded.devices)):
            while not _is_finished(job, receiver):
                await asyncio.sleep(POLL_SECONDS)
                job = await customer.job(seeded.app_id, job_id)
                shown.show(Moment(job["sent"], receiver.tokens.total(), sum(job["feedbacks"].values())))
    except TimeoutError:
        in_time = False
    return Story(
        seeded=seeded,
        job=job,
        tokens=receiver.tokens,
        answers=receiver.answers,
        first_record=receiver.first_at - called,
        last_record=receiver.last_at - called,
        counted=time.monotonic() - called,
        in_time=in_time,
    )


def _is_finished(job: Object, receiver: Receiver) -> bool:
    """Whether the job is completed, all that it sent has come, and all answers to that are counted on it."""
    answered = receiver.answers.total()
    return bool(job["completedAt"] and answered >= job["sent"] and sum(job["feedbacks"].values()) >= answered)


def _patience(devices: int) -> float:
    return 60.0 + devices / 1000


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
