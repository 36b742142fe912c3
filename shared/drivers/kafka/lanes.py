"""Lanes: a few transactional producers; each serves one batch at a time."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from shared.core.errors import LaneLost
from shared.drivers.kafka import Aborted
from shared.drivers.kafka.ledger import entry, group_of
from shared.drivers.kafka.produce import Framing, append, wait_for_all
from shared.drivers.kafka.servers import KafkaServers, answer_within, stop
from shared.jobs.rules.batches import Batch, BatchPart
from shared.runtime.faults import fault
from shared.runtime.metrics import LANES
from shared.runtime.server_settings import StreamSettings

_ABORT_SECONDS = 5.0


class KafkaLane:
    """A transactional producer. `usable` turns false for good if a transaction was not certainly committed.

    That includes a confirmed abort: aiokafka goes on counting from the sequence numbers of the refused records, and the
    broker then refuses the next ones too.
    """

    def __init__(
        self, lane_id: str, producer: AIOKafkaProducer, framing: Framing, *, ledger_topic: str, timeout_seconds: float
    ) -> None:
        self.id = lane_id
        self.usable = True
        self._producer = producer
        self._framing = framing
        self._ledger_topic = ledger_topic
        self._timeout_seconds = timeout_seconds

    async def produce(self, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
        """The deadline is half the transaction's time-out, so that the broker gives up later than this process."""
        self.usable = False
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await self._producer.begin_transaction()
                pending = await append(self._producer, topic, records, self._framing)
                await fault("send.in_transaction")
                # A commit succeeds even if records failed: check every record before the marker is sent.
                if failures := await wait_for_all(pending):
                    raise _RecordsFailed(failures)
                marker = entry(self._ledger_topic, batch, self.id, part)
                await self._producer.send_offsets_to_transaction(marker, group_of(batch.job_id))
                await self._producer.commit_transaction()
                await fault("stream.commit_reply")
        except _RecordsFailed as error:
            await self._abort(error)
        except (KafkaError, OSError, TimeoutError, AssertionError) as error:
            raise LaneLost(self.id, f"{type(error).__name__}: {error}") from error
        self.usable = True

    async def stop(self) -> None:
        """End the producer. An open transaction ends by its time-out, or when a process fences it."""
        await stop(self._producer)

    async def _abort(self, cause: "_RecordsFailed") -> None:
        try:
            async with asyncio.timeout(_ABORT_SECONDS):
                await self._producer.abort_transaction()
        except (KafkaError, OSError, TimeoutError, AssertionError) as error:
            raise LaneLost(self.id, f"abort: {type(error).__name__}: {error}") from cause
        raise Aborted(str(cause), final=cause.final) from cause


class _RecordsFailed(Exception):
    def __init__(self, failures: Sequence[BaseException]) -> None:
        super().__init__(f"{len(failures)} produce batches failed: {failures[0]!r}")
        self.final = any(isinstance(failure, KafkaError) and not failure.retriable for failure in failures)


class Lanes:
    """A bounded pool of lanes. A lost lane is replaced by one with a new id."""

    def __init__(self, servers: KafkaServers, settings: StreamSettings, *, client_id: str, count: int) -> None:
        self._ledger_topic = settings.ledger_topic
        self._produce_seconds = settings.transaction_timeout_seconds / 2
        self._start_seconds = settings.request_timeout_seconds
        self._options = {
            **servers.options(f"{client_id}-lane"),
            "transaction_timeout_ms": int(settings.transaction_timeout_seconds * 1000),
            "request_timeout_ms": int(settings.request_timeout_seconds * 1000),
            "acks": "all",
            "max_request_size": max(settings.max_record_bytes, _BATCH_BYTES) + 1024,
            "retry_backoff_ms": 20,
        }
        self._framing = Framing(min(_BATCH_BYTES, settings.max_record_bytes), settings.compression, transactional=True)
        self._permits = asyncio.Semaphore(count)
        self._idle: list[KafkaLane] = []
        LANES.labels("idle").set_function(lambda: len(self._idle))
        self._ending: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[KafkaLane]:
        async with self._permits:
            lane = self._idle.pop() if self._idle else await self._start_lane()
            try:
                with LANES.labels("sending").track_inprogress():
                    yield lane
            finally:
                if lane.usable:
                    self._idle.append(lane)
                else:
                    self._spawn(lane.stop())

    def discard(self, lane_id: str) -> None:
        """Drop an idle lane that is about to be fenced."""
        for lane in [lane for lane in self._idle if lane.id == lane_id]:
            self._idle.remove(lane)
            self._spawn(lane.stop())

    async def fence(self, lane_id: str) -> None:
        """Abort the lane's open transaction and make every later commit of it fail."""
        producer = await self._start(lane_id)
        await stop(producer)

    async def close(self) -> None:
        idle, self._idle = self._idle, []
        await asyncio.gather(*(lane.stop() for lane in idle), *self._ending)

    async def _start_lane(self) -> KafkaLane:
        # Random and never used again. The producer starts before another process can read the id and fence it too
        # early.
        lane_id = f"carillon-{secrets.token_hex(12)}"
        producer = await self._start(lane_id)
        return KafkaLane(
            lane_id, producer, self._framing, ledger_topic=self._ledger_topic, timeout_seconds=self._produce_seconds
        )

    async def _start(self, lane_id: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(transactional_id=lane_id, **self._options)
        try:
            async with answer_within(self._start_seconds):
                await producer.start()
        except BaseException:
            self._spawn(stop(producer))
            raise
        return producer

    def _spawn(self, ending: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(ending)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


# Few large produce batches cost least. The broker's default limit for one is 1,048,588 bytes.
_BATCH_BYTES = 960 * 1024
