"""Every feedback record counts once, whoever is killed, put to sleep or cut off, and wherever its partition moves.

Expectations are counted from what was published; the store is asked until it shows them. Then the positions must stand
at the topics' ends, and nothing may come after it.
"""

import asyncio
import json
import signal
from collections import Counter
from itertools import count, cycle, islice
from urllib.parse import urlsplit

import pytest

from tests.drivers.rabbitmq.proxy import SilencableProxy
from tests.e2e.house import House, Process
from tests.stack.mongodb import through_port
from tests.tiers import and_rarely
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]

PARTITIONS = 4


class Receiver:
    """What answers to the pushes of two jobs, and remembers what it said."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.jobs: list[str] = []
        self.said: dict[str, Counter[str]] = {}
        self.records = 0
        self._topics = count()

    async def jobs_to_answer(self) -> None:
        for _ in range(2):
            job = self.house.job()
            await self.house.servers.store.jobs.add(job)
            self.jobs.append(job.id)
            self.said[job.id] = Counter()

    async def topic(self) -> str:
        name = f"{self.house.app}-{next(self._topics)}-feedbacks"
        await self.house.servers.stream.setup({name: PARTITIONS})
        return name

    async def answer(self, topic: str, records: int) -> None:
        """Answers in small portions, so that they spread over the partitions."""
        kinds = cycle([("ack", None), ("bad-device-token", {"Key": "bad-device-token"}), ("ack", None)])
        for portion in _portions(records, 50):
            values = []
            for number, (outcome, err) in enumerate(islice(kinds, portion)):
                job_id = self.jobs[number % 2]
                values.append(json.dumps({"Err": err, "metadata": {"jobId": job_id}, "ApnsID": number}).encode())
                self.said[job_id][outcome] += 1
            values.append(b"not JSON")
            await self.house.servers.stream.publish(topic, values)
            self.records += len(values)

    async def start(self, *, fault: str = "", **environment: str) -> Process:
        """A feedback process that reads this house's topics only."""
        own = {
            "CARILLON_FEEDBACK_TOPICS": f"^{self.house.app}-.*-feedbacks$",
            "CARILLON_FEEDBACK_GROUP": f"feedback-{self.house.app}",
            "CARILLON_FEEDBACK_FLUSH_SECONDS": "0.3",
        }
        return await self.house.start("feedback-answers", fault=fault, **(own | environment))

    async def counted(self) -> None:
        """Wait until everything said is counted; it must never be more, and no record may be left."""
        await until(self._stands_at_the_end, "all records to be stored")
        assert await self._counts() == self.said

    async def _stands_at_the_end(self) -> bool:
        for job_id, counts in (await self._counts()).items():
            assert counts <= self.said[job_id], f"counted too often\n{self.house.logs()}"
        return await self.standing() == self.records

    async def standing(self) -> int:
        """How many records the positions say are counted."""
        names = [f"{self.house.app}-{topic}-feedbacks/{part}" for topic in range(10) for part in range(PARTITIONS)]
        stored = await self.house.servers.store.feedbacks.positions(names)
        return sum(position.offset for position in stored.values())

    async def _counts(self) -> dict[str, Counter[str]]:
        jobs = [await self.house.servers.store.jobs.get(job_id) for job_id in self.jobs]
        return {job.id: Counter(job.feedbacks) for job in jobs if job is not None}


def _portions(total: int, size: int) -> list[int]:
    return [size] * (total // size) + ([total % size] if total % size else [])


@pytest.fixture
async def receiver(house: House) -> Receiver:
    made = Receiver(house)
    await made.jobs_to_answer()
    return made


async def ended(*processes: Process) -> None:
    for process in processes:
        process.send(signal.SIGTERM)
    for process in processes:
        assert await process.gone() == 0, process.log


@pytest.mark.proof
@pytest.mark.parametrize("point", and_rarely("feedback.after_flush", rarely=("feedback.before_flush",)))
async def test_it_is_killed_around_a_flush(receiver: Receiver, point: str) -> None:
    topic = await receiver.topic()
    await receiver.answer(topic, 1_000)
    killed = await receiver.start(fault=f"{point}@2=kill")
    await until(receiver.standing, "the first flush")
    await receiver.answer(topic, 500)
    await killed.reached(point)
    assert await killed.gone() == -signal.SIGKILL
    heir = await receiver.start()
    await receiver.counted()
    await ended(heir)
    await receiver.counted()


async def test_a_partition_moves_while_its_reader_sleeps_on_a_fold(receiver: Receiver) -> None:
    """The sleeper wakes up with a fold that somebody else has stored by then."""
    topic = await receiver.topic()
    await receiver.answer(topic, 1_000)
    sleeper = await receiver.start(fault="feedback.before_flush=stop")
    await sleeper.reached("feedback.before_flush")
    heir = await receiver.start()
    await receiver.counted()
    sleeper.send(signal.SIGCONT)
    await sleeper.said("fold lost")
    await receiver.answer(topic, 1_000)
    await receiver.counted()
    await ended(sleeper, heir)
    await receiver.counted()


async def test_a_fold_is_stored_by_its_old_reader_while_the_new_one_holds_it_too(receiver: Receiver) -> None:
    topic = await receiver.topic()
    await receiver.answer(topic, 1_000)
    old = await receiver.start(fault="feedback.before_flush=stop")
    await old.reached("feedback.before_flush")
    new = await receiver.start(fault="feedback.before_flush=stop")
    await new.reached("feedback.before_flush")
    old.send(signal.SIGCONT)
    await receiver.counted()
    new.send(signal.SIGCONT)
    await new.said("fold lost")
    await receiver.answer(topic, 1_000)
    await receiver.counted()
    await ended(old, new)
    await receiver.counted()


@pytest.mark.slow
async def test_readers_come_and_go_while_records_come_in(receiver: Receiver) -> None:
    topic = await receiver.topic()

    async def answers() -> None:
        for _ in range(60):
            await receiver.answer(topic, 200)

    answering = asyncio.create_task(answers())
    first = await receiver.start()
    second = await receiver.start()
    await until(receiver.standing, "the first records to be counted")
    await receiver.house.kill(first)
    third = await receiver.start()
    await ended(second)
    await answering
    await receiver.counted()
    await ended(third)
    await receiver.counted()


async def test_a_topic_appears_while_it_runs(receiver: Receiver) -> None:
    running = await receiver.start()
    await receiver.answer(await receiver.topic(), 300)
    await receiver.counted()
    await receiver.answer(await receiver.topic(), 300)
    await receiver.counted()
    await ended(running)
    await receiver.counted()


@pytest.mark.slow
async def test_mongodb_is_silent_for_a_while(receiver: Receiver) -> None:
    topic = await receiver.topic()
    url = urlsplit(receiver.house.environment["CARILLON_STORE_URL"])
    assert url.hostname
    assert url.port
    proxy = SilencableProxy(url.hostname, url.port)
    async with proxy.running():
        through = through_port(receiver.house.environment["CARILLON_STORE_URL"], proxy.port)
        running = await receiver.start(CARILLON_STORE_URL=through)
        await receiver.answer(topic, 500)
        await receiver.counted()
        proxy.silent = True
        await receiver.answer(topic, 500)
        await running.said("waits to be stored|waits to read")
        proxy.silent = False
        await receiver.answer(topic, 500)
        await receiver.counted()
        await ended(running)
        await receiver.counted()
