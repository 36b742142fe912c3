"""The smallest subject: a route hangs up a bell, the clock says when it is due, and a worker rings it.

And it is a kind of job: a batch is sent by ringing once for all of its recipients.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any, ClassVar

from litestar import Request, Response
from msgspec import Struct
from pymongo.asynchronous.database import AsyncDatabase

from services.api.http import wire
from services.api.http.rights import KNOWN
from services.api.http.routes import Resource, Route
from services.parts import Check, Part
from services.parts.jobs.common import JobsPart
from services.scheduler.fire import OnDue
from services.worker.consumer import Stage
from shared.broker import Broker
from shared.domain.clock.occurrences import Occurrence, Owner, once, owner_text, read_owner
from shared.domain.jobs.batches import BatchStatus, Receipt
from shared.domain.jobs.jobs import Job, SendBatch
from shared.domain.tasks import Task, encode
from shared.flow.jobs.feed import Feed
from shared.flow.jobs.kinds import JobKind
from shared.store import Store
from shared.store.documents import Aggregate, Document

PROCESSES = {"sexton": "Look after the bells."}

BELL = "bell"
NAME = "vespers"


class BellView(Struct, frozen=True):
    name: str


class RingBell(Task, frozen=True, tag="ring"):
    queue: ClassVar[str] = "carillon.bells.ring"
    name: str


class RingBatch(SendBatch, frozen=True, tag="ring-batch"):
    queue: ClassVar[str] = "carillon.bells.batch"


class BellStore(Aggregate):
    def __init__(self, database: AsyncDatabase[Document]) -> None:
        self._bells = database["bells"]

    async def setup(self) -> None:
        await self._bells.create_index("rung")

    async def hang(self, name: str) -> None:
        await self._bells.insert_one({"_id": name, "rung": 0})

    async def ring(self, name: str) -> None:
        await self._bells.update_one({"_id": name}, {"$inc": {"rung": 1}})

    async def rung(self, name: str) -> int:
        found = await self._bells.find_one({"_id": name})
        return 0 if found is None else int(found["rung"])


class BellsResource(Resource):
    def __init__(self, part: "Bells") -> None:
        self._part = part

    @Route(
        "POST", "/bells", summary="Hang up a bell that rings in a moment.",
        act="bell.hang", who=KNOWN, answers={HTTPStatus.CREATED: BellView},
    )  # fmt: skip
    async def add(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        await self._part.bells.hang(NAME)
        now: datetime = await self._part.store.now()
        owner = owner_text(Owner(BELL, NAME))
        due = once(owner, "first", now + timedelta(milliseconds=50), accepted_at=now)
        await self._part.store.occurrences.add([due])
        return wire.answer(BellView(NAME), HTTPStatus.CREATED)


class Ring(Stage[RingBell]):
    task = RingBell
    in_flight = 1

    def __init__(self, bells: BellStore) -> None:
        self._bells = bells

    async def run(self, task: RingBell) -> None:
        await self._bells.ring(task.name)

    async def put_off(self, task: RingBell) -> None: ...

    async def give_up(self, task: RingBell, reason: str) -> None: ...


class RingAll(Stage[RingBatch]):
    task = RingBatch
    in_flight = 2

    def __init__(self, store: Store, bells: BellStore, feed: Feed) -> None:
        self._store = store
        self._bells = bells
        self._feed = feed

    async def run(self, task: RingBatch) -> None:
        # A stage that sends must recover an owned batch first, and ask the gate.
        batch = await self._store.batches.get(task.job_id, task.ordinal)
        taken = (
            None
            if batch is None or batch.turn != task.turn
            else await self._store.batches.take(batch, owner="the tower")
        )
        if taken is not None:
            await self._bells.ring(NAME)
            await self._store.batches.settle(taken, to=BatchStatus.SENT, receipt=Receipt(sent=taken.size))
            await self._feed.feed_successor(taken)

    async def put_off(self, task: RingBatch) -> None:
        await self._feed.put_off(task)

    async def give_up(self, task: RingBatch, reason: str) -> None: ...


class Tolling(JobKind):
    batch_task = RingBatch

    @property
    def services(self) -> dict[str, str]:
        return {"bells": "bell ropes"}

    def recipients_per_part(self, job: Job) -> int:
        return 1_000

    async def prepare(self, job: Job) -> None: ...


class Bells(Part):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.bells = self.store.add("bells", BellStore)
        self._broker: Broker = self.capabilities.broker

    def resources(self) -> Sequence[Resource]:
        return (BellsResource(self),)

    def stages(self) -> Sequence[Stage[Any]]:
        return (Ring(self.bells), RingAll(self.store, self.bells, self.parts.of(JobsPart).feed))

    def job_kinds(self) -> Sequence[JobKind]:
        return (Tolling(),)

    def on_due(self) -> Mapping[str, OnDue]:
        return {BELL: self._publish}

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"the tower": self.store.ping}

    async def _publish(self, occurrence: Occurrence) -> None:
        await self._broker.publish(RingBell.queue, encode(RingBell(read_owner(occurrence.owner).id)))
