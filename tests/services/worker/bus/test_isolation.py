"""What one namespace's receivers hold, be it queues, calls or bytes, keeps nobody else's events from their own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import Struct

from services.worker.bus import queue_run
from shared.bus.receivers import OF_NAMESPACE, Receivers, ReceiverTrials
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.rules.wake_ups import Wake
from shared.core.errors import TooMany, Unavailable
from shared.drivers.http import Answer, Call, Outgoing, PostedAnswer, Posting
from shared.store import Store
from tests.receivers import receiver
from tests.services.worker.bus.delivering import NAMESPACE, Delivering, delivering, local_outgoing
from tests.waiting import until

pytestmark = pytest.mark.native

FOR_LONG = 100.0
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Stalling:
    """A receiver that answers the first calls, and the others when it is released."""

    def __init__(self, answers: int) -> None:
        self.released = asyncio.Event()
        self.held = 0
        self.url = ""
        self._answers = answers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if self._answers:
            self._answers -= 1
        else:
            self.held += 1
            await self.released.wait()
        writer.write(_ANSWER)
        writer.close()


@asynccontextmanager
async def stalling(answers: int) -> AsyncIterator[Stalling]:
    made = Stalling(answers)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = "http://127.0.0.1:{1}".format(*server.sockets[0].getsockname())
    async with server:
        yield made


class Attack(Struct, frozen=True):
    """So many `queues` of one namespace with so many `events` each, of so many bytes. Its receivers answer so many
    calls, and then hold six at least."""

    queues: int
    events: int = 1
    size: int = 10
    answers: int = 0
    places: int = 200
    bytes: int = 2**20


ATTACKS = {
    "queues": Attack(queues=12, places=8),
    "calls": Attack(queues=1, events=30, answers=7, places=8),
    "bytes": Attack(queues=12, size=1_000, bytes=8_200),
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
async def test_what_one_namespace_holds_is_not_all(store: Store, tmp_path: Path, attack: Attack) -> None:
    async with (
        receiver(tmp_path / "arrivals") as at,
        stalling(attack.answers) as stalled,
        delivering(store, at, call_seconds=FOR_LONG, in_flight=attack.places) as bus,
    ):
        bus.budget.shares.capacity = attack.bytes
        other = await bus.subscribe("other", namespace="token:other")
        hostile = [await _subscribe(bus, number, stalled.url) for number in range(attack.queues)]
        for one in hostile:
            await bus.publish(one, *["x" * attack.size] * attack.events)
        await until(lambda: stalled.held >= 6)
        await bus.publish(other, "x" * attack.size)
        await bus.sent(other, 1)
        assert [(await bus.cursor(one)).sent for one in hostile] == [attack.answers] * attack.queues
        stalled.released.set()
        for one in hostile:
            await bus.sent(one, attack.events)


@pytest.mark.slow
async def test_many_quick_queues_of_one_namespace_pause_for_nobody(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment it has more in hand than its share, but they come and go."""
    monkeypatch.setattr(queue_run, "_CROWDED", timedelta(hours=1))
    async with receiver(tmp_path / "arrivals") as at, delivering(store, at, in_flight=40) as bus:
        queues = [await bus.subscribe(f"k{number}", callback=f"{at.url}/quick", max_events=1) for number in range(200)]
        for one in queues:
            await bus.publish(one, 1, wake=False)
        now = await bus.time.now()
        await bus.waker.wake([Wake(one.queue, now, 1) for one in queues])
        await bus.arrived(len(queues))


class NotLookedUp:
    """Our client, which cannot look up a name the first few times."""

    def __init__(self, outgoing: Outgoing, times: int) -> None:
        self._outgoing = outgoing
        self._times = times
        self.owners: list[str] = []

    async def call(self, request: Call) -> Answer:
        self.owners.append(request.owner)
        if len(self.owners) <= self._times:
            raise Unavailable("no thread")
        return await self._outgoing.call(request)

    async def post(self, posting: Posting) -> PostedAnswer:
        return await self._outgoing.post(posting)

    async def close(self) -> None:
        await self._outgoing.close()


async def test_a_call_that_was_not_made_costs_the_receiver_nothing(store: Store, tmp_path: Path) -> None:
    outgoing = NotLookedUp(local_outgoing(5), 3)
    async with receiver(tmp_path / "arrivals") as at, delivering(store, at, outgoing=outgoing) as bus:
        subscription = await bus.subscribe()
        await bus.publish(subscription, 1)
        cursor = await bus.sent(subscription, 1)
        assert (cursor.health.points, cursor.dead) == (100, 0)
        (delivery,) = await bus.deliveries(subscription)
        assert [attempt.status for attempt in delivery.attempts] == [200]
        assert outgoing.owners == [NAMESPACE] * 4


async def test_ten_tests_of_a_namespace_at_a_time(bus: Delivering) -> None:
    outgoing = local_outgoing(FOR_LONG)
    trials = ReceiverTrials(bus.subscribing, Receivers(outgoing, bus.ring, bus.time), bus.time)
    other = await bus.subscribe("other", namespace="token:other")
    async with stalling(0) as stalled:
        tried = [await _subscribe(bus, number, stalled.url) for number in range(OF_NAMESPACE + 1)]
        tasks = [asyncio.create_task(trials.try_receiver(each.namespace, each.key)) for each in tried[:-1]]
        await until(lambda: stalled.held >= OF_NAMESPACE)
        with pytest.raises(TooMany, match="10 tests of this namespace"):
            await trials.try_receiver(NAMESPACE, tried[-1].key)
        assert (await trials.try_receiver(other.namespace, other.key)).status == 200
        stalled.released.set()
        assert {attempt.status for attempt in await asyncio.gather(*tasks)} == {200}
        assert (await trials.try_receiver(NAMESPACE, tried[-1].key)).status == 200
    await outgoing.close()


async def _subscribe(bus: Delivering, number: int, url: str) -> EventSubscription:
    return await bus.subscribe(f"k{number}", callback=f"{url}/", max_events=1, in_flight=32)
