"""Appending by keys: each record goes to the partition of its key; a partition takes the records of one call at a time.

append ──> the partition has acknowledged all records before ──> handed to the driver at once
             ├─ it has not: the records join its line; the call waits at most `patience_seconds`
             └─ no producer is open: the call takes its turn to open one, until the deadline
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import structlog

from shared.stream import LateRecords
from shared.stream.kafka.acknowledgements import is_of_producer, is_well, look_at, translate
from shared.stream.kafka.connections import translate_errors
from shared.stream.kafka.partition_lines import PartitionLines, PartOfCall, Records
from shared.stream.kafka.produce import wait_for_all
from shared.stream.kafka.producers import Producers, SharedProducer

log = structlog.get_logger(__name__)
T = TypeVar("T")

_Handed = tuple[SharedProducer, Sequence[PartOfCall]]


class KeyedAppends:
    """Appends records by their keys with the current producer."""

    def __init__(self, producers: Producers, *, timeout_seconds: float) -> None:
        self._producers = producers
        self._timeout_seconds = timeout_seconds
        self._lines = PartitionLines(producers, timeout_seconds=timeout_seconds)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._turn = asyncio.Lock()
        self._handing: set[asyncio.Task[_Handed]] = set()

    async def append(
        self, topic: str, records: Records, *, patience_seconds: float, seconds: float
    ) -> Sequence[LateRecords]:
        clock = asyncio.get_running_loop().time
        until, deadline = clock() + patience_seconds, clock() + seconds
        if self._producers.is_open and not self._handing:
            shared, parts = await self._hand_over(topic, records, deadline)
        else:
            handing = self._keep(self._hand_over_in_turn(topic, records, deadline))
            self._handing.add(handing)
            handing.add_done_callback(self._handing.discard)
            try:
                await asyncio.wait((handing,), timeout=patience_seconds)
            except asyncio.CancelledError:
                _ = self._keep(self._wait_until_appended(handing))
                raise
            if not handing.done():
                return [LateRecords(range(len(records)), translate(self._keep(self._wait_until_appended(handing))))]
            shared, parts = handing.result()
        awaited = _first_in_line(parts)
        try:
            if awaited:
                await asyncio.wait(awaited, timeout=max(0.0, until - clock()))
        finally:
            if all(done.done() for done in awaited):
                self._producers.give_back(shared, usable=not any(map(is_of_producer, awaited)))
            else:
                _ = self._keep(self._wait_for_late(awaited, shared))
        return [LateRecords(part.places, translate(part.done)) for part in parts if not is_well(part.done)]

    async def _hand_over_in_turn(self, topic: str, records: Records, deadline: float) -> _Handed:
        """Hand over when a producer is open, after the calls that waited before."""
        with translate_errors():
            async with asyncio.timeout_at(deadline), self._turn:
                return await self._hand_over(topic, records, deadline)

    async def _wait_until_appended(self, handing: asyncio.Task[_Handed]) -> None:
        shared, parts = await handing
        await self._wait_for_late(_first_in_line(parts), shared)
        for part in parts:
            await part.done

    async def _wait_for_late(self, awaited: Sequence[asyncio.Future[Any]], shared: SharedProducer) -> None:
        for done in awaited:
            done.add_done_callback(lambda done: shared.mistrust() if is_of_producer(done) else None)
        try:
            async with asyncio.timeout(2 * self._timeout_seconds):
                await wait_for_all(awaited)
        except TimeoutError:
            log.warning("a partition has not answered", seconds=2 * self._timeout_seconds)
        finally:
            self._producers.give_back(shared, usable=not any(map(is_of_producer, awaited)))

    def _keep(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(look_at)
        return task

    async def _hand_over(self, topic: str, records: Records, deadline: float) -> _Handed:
        with translate_errors():
            async with asyncio.timeout(2 * self._timeout_seconds):
                shared = await self._producers.take()
                try:
                    return shared, await self._lines.hand_over(shared.producer, topic, records, deadline)
                except BaseException:
                    self._producers.give_back(shared, usable=False)
                    raise


def _first_in_line(parts: Sequence[PartOfCall]) -> list[asyncio.Future[Any]]:
    return [part.done for part in parts if not part.is_behind]
