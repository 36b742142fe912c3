"""Hands each kind of callback to its target, a whole group at once.

This process publishes to RabbitMQ and Kafka, with confirms. Workers make HTTP calls and start jobs: the occurrence's
lease is moved past the call, and a task with its id and token goes to their queue; the worker settles it by that token.
The number of waiting calls is limited, and so is the number of one namespace's calls in workers' hands. The others stay
in the store until their turn: one after the other, as fast as calls of that namespace have recently ended.

The count of a namespace's calls is kept in memory. If it reaches the limit, a query to the store finds which calls
have ended, at most four times a second. A call whose lease is over no longer counts. So the count needs no message
from the workers, and is right again after any of them is killed.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime, timedelta
from math import ceil

from msgspec import Struct, field

from shared.clock.rules.callbacks import (
    CALL_QUEUE,
    CallTarget,
    KafkaCallback,
    QueueMessage,
    RabbitCallback,
    TopicMessage,
    host_of,
)
from shared.clock.rules.occurrences import Occurrence, OccurrenceKind, handed_over
from shared.clock.rules.schedules import Schedule, carillon_headers
from shared.clock.settlement import Attempt, Settlement
from shared.clock.store_occurrences import fresh_token
from shared.core.errors import Unavailable
from shared.core.tasks import encode
from shared.drivers.kafka import Stream
from shared.drivers.rabbitmq import Broker
from shared.runtime.faults import fault
from shared.runtime.metrics import CALLS_OVER_SHARE
from shared.runtime.tracing import resume, with_header
from shared.store import Store

Due = tuple[Occurrence, Schedule]
_LOOK_SECONDS = 0.25
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 60.0
_LEAST_RATE = 0.5


class _Calls(Struct):
    """The calls of one namespace: the end of each call's lease, how many calls end a second, and the last turn
    given. Times are the event loop's."""

    rate: float
    ends: dict[str, float] = field(default_factory=dict)
    looked_at: float = 0.0
    last_turn: float = 0.0

    def look(self, there: set[str], now: float) -> None:
        """Forget calls that have ended or whose lease is over."""
        ended = len(self.ends)
        self.ends = {id: end for id, end in self.ends.items() if end > now and id in there}
        ended -= len(self.ends)
        lasted = max(now - self.looked_at, _LOOK_SECONDS)
        self.rate = max((self.rate + ended / lasted) / 2, _LEAST_RATE)
        self.looked_at = now

    def take_turn(self, now: float) -> float:
        """Give the next turn; returns the seconds until it."""
        wanted = self.last_turn + 1 / self.rate - now
        seconds = min(max(wanted, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        self.last_turn = now + seconds
        return float(ceil(seconds))


class InHand:
    """Counts the calls in workers' hands, at most `most` per namespace."""

    def __init__(self, store: Store, *, most: int, lease_seconds: float) -> None:
        self._store = store
        self._most = most
        self._lease_seconds = lease_seconds
        self._calls: dict[str, _Calls] = {}
        self._forget_at = 0.0

    async def split(self, due: Sequence[Due]) -> tuple[list[Due], list[tuple[Due, float]]]:
        """Split these into calls to hand over now, and calls over their namespace's limit with the seconds until their
        turn."""
        by_namespace: dict[str, list[Due]] = {}
        for entry in due:
            by_namespace.setdefault(entry[1].namespace, []).append(entry)
        await self._look({namespace for namespace, calls in by_namespace.items() if len(calls) > self._room(namespace)})
        fitting: list[Due] = []
        over: list[tuple[Due, float]] = []
        now = asyncio.get_running_loop().time()
        for namespace, calls in by_namespace.items():
            room = self._room(namespace)
            fitting += calls[:room]
            over += [(entry, self._calls_of(namespace).take_turn(now)) for entry in calls[room:]]
        self._forget(now)
        return fitting, over

    def add(self, namespaces: Mapping[str, str]) -> None:
        """Count calls that are handed over, given as the namespace of each id."""
        end = asyncio.get_running_loop().time() + self._lease_seconds
        for id, namespace in namespaces.items():
            self._calls_of(namespace).ends[id] = end

    def _room(self, namespace: str) -> int:
        calls = self._calls.get(namespace)
        return self._most if calls is None else max(self._most - len(calls.ends), 0)

    def _calls_of(self, namespace: str) -> _Calls:
        # Until something is known, assume that all calls end within a second.
        return self._calls.setdefault(namespace, _Calls(rate=self._most))

    async def _look(self, full: set[str]) -> None:
        """Ask which calls of these namespaces have ended, at most every `_LOOK_SECONDS`."""
        now = asyncio.get_running_loop().time()
        asked = [calls for namespace in full if now >= (calls := self._calls_of(namespace)).looked_at + _LOOK_SECONDS]
        if not asked:
            return
        ids = [id for calls in asked for id in calls.ends]
        there = await self._store.occurrences.find_claimed(ids) if ids else set()
        for calls in asked:
            calls.look(there, now)

    def _forget(self, now: float) -> None:
        """Forget namespaces without calls, once a lease."""
        if now < self._forget_at:
            return
        self._forget_at = now + self._lease_seconds
        self._calls = {
            namespace: calls
            for namespace, calls in self._calls.items()
            if calls.last_turn >= now or any(end > now for end in calls.ends.values())
        }


@dataclass
class Deliveries:
    store: Store
    broker: Broker
    stream: Stream
    settlement: Settlement
    _: KW_ONLY
    call_lease: timedelta
    waiting_calls: int
    in_hand: InHand

    async def deliver(self, due: Sequence[Due], now: datetime) -> tuple[list[Attempt], list[Occurrence]]:
        """Hand these out; return the attempts to settle, and the occurrences of series that have already moved on."""
        queues: list[tuple[Due, RabbitCallback]] = []
        topics: list[tuple[Due, KafkaCallback]] = []
        calls: list[Due] = []
        for occurrence, schedule in due:
            match schedule.definition.callback:
                case RabbitCallback() as callback:
                    queues.append(((occurrence, schedule), callback))
                case KafkaCallback() as callback:
                    topics.append(((occurrence, schedule), callback))
                case _:
                    calls.append((occurrence, schedule))
        queued, appended, (refused, moved) = await asyncio.gather(
            self._publish(queues, now), self._append(topics, now), self._hand_over_within_bounds(calls, now)
        )
        return [*queued, *appended, *refused], moved

    async def _publish(self, due: list[tuple[Due, RabbitCallback]], now: datetime) -> list[Attempt]:
        messages = [_queue_message(*entry, callback) for entry, callback in due]
        outcomes = await self.broker.deliver(messages) if due else []
        return [Attempt(*entry, now, outcome) for (entry, _), outcome in zip(due, outcomes, strict=True)]

    async def _append(self, due: list[tuple[Due, KafkaCallback]], now: datetime) -> list[Attempt]:
        messages = [_topic_message(*entry, callback) for entry, callback in due]
        outcomes = await self.stream.deliver(messages) if due else []
        return [Attempt(*entry, now, outcome) for (entry, _), outcome in zip(due, outcomes, strict=True)]

    async def _hand_over_within_bounds(self, due: list[Due], now: datetime) -> tuple[list[Attempt], list[Occurrence]]:
        if not due:
            return [], []
        if refusal := await self._look_for_room():
            return [Attempt(occurrence, schedule, now, refusal, made=False) for occurrence, schedule in due], []
        due, over = await self.in_hand.split(due)
        CALLS_OVER_SHARE.inc(len(over))
        reason = Unavailable("enough calls of this namespace are in workers' hands")
        put_off = [
            Attempt(occurrence, schedule, now, reason, retry_after_seconds=pause, made=False)
            for (occurrence, schedule), pause in over
        ]
        return put_off, await self._hand_over(due, now)

    async def _hand_over(self, due: list[Due], now: datetime) -> list[Occurrence]:
        """Give these to the workers; return the occurrences of series that have moved on."""
        if not due:
            return []
        leased_until = now + self.call_lease
        series = [entry for entry in due if entry[0].kind is OccurrenceKind.SERIES]
        singles = [entry for entry in due if entry[0].kind is not OccurrenceKind.SERIES]
        token = fresh_token()
        copies = [
            (handed_over(occurrence, token, leased_until=leased_until), schedule) for occurrence, schedule in series
        ]
        calls = [*singles, *copies]
        self.in_hand.add({occurrence.id: schedule.namespace for occurrence, schedule in calls})
        await self.store.occurrences.add([copy for copy, _ in copies])
        moved = await self.settlement.move_on([(*entry, None) for entry in series])
        handed = [occurrence for occurrence, _ in singles]
        await self.store.occurrences.hand_over(handed, token, leased_until=leased_until)
        await fault("clock.after_hand_over")
        tasks = [encode(_task(occurrence, schedule, token)) for occurrence, schedule in calls]
        # A task that is not queued is no loss: its occurrence is visible again when the lease ends.
        await asyncio.gather(*(self.broker.publish(CALL_QUEUE, task) for task in tasks), return_exceptions=True)
        return moved

    async def _look_for_room(self) -> Unavailable | None:
        try:
            waiting = await self.broker.depth(CALL_QUEUE)
        except Unavailable as error:
            return error
        return Unavailable("enough calls wait for workers") if waiting >= self.waiting_calls else None


def _task(occurrence: Occurrence, schedule: Schedule, token: str) -> CallTarget:
    host = host_of(schedule.definition.callback)
    return CallTarget(occurrence.id, token, namespace=schedule.namespace, host=host, trace=resume(occurrence.trace))


def _queue_message(occurrence: Occurrence, schedule: Schedule, callback: RabbitCallback) -> QueueMessage:
    return QueueMessage(
        exchange=callback.exchange,
        routing_key=callback.queue or callback.routing_key,
        body=callback.payload.encode(),
        message_id=occurrence.message_id,
        headers={**with_header(callback.headers, resume(occurrence.trace)), **carillon_headers(occurrence, schedule)},
    )


def _topic_message(occurrence: Occurrence, schedule: Schedule, callback: KafkaCallback) -> TopicMessage:
    own = carillon_headers(occurrence, schedule) | {"message-id": occurrence.message_id}
    headers = {**with_header(callback.headers, resume(occurrence.trace)), **own}
    return TopicMessage(callback.topic, callback.key, callback.payload.encode(), headers)
