"""What is changed in mutants: one function in the place of another."""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec.structs import replace

from services.worker.jobs.finish import Mailer
from services.worker.push.send import Sender
from shared.core.documents import Position
from shared.core.errors import LaneLost, Unavailable
from shared.drivers.kafka import Aborted
from shared.jobs.finish import Breaker, Finish
from shared.jobs.moves import GroupFlow
from shared.jobs.rules.batches import Batch, BatchPart, BatchStatus
from shared.jobs.rules.jobs import Job, SendBatch, SendMail, Standing
from shared.jobs.store_batches import Batches, Head, PlanEnd
from shared.jobs.store_jobs import Jobs
from shared.jobs.store_milestones import Mails
from shared.jobs.upkeep import Found, Upkeep
from shared.push.store import Feedbacks
from tests.models.push.stream import ModelLane, ModelStream, sent_by_owner
from tests.models.push.transactions import Content, Marker, Sent
from tests.models.simulated.simulation import Process

_Method = Callable[..., Awaitable[Any]]


def blind(name: str, *fields: str) -> tuple[Any, str, _Method]:
    """A move of a batch that does not compare these fields: it takes them as they are by now."""
    original = getattr(Batches, name)

    async def move(self: Batches, batch: Batch, *args: Any, **named: Any) -> Any:
        now = await self.get(batch.job_id, batch.ordinal)
        return await original(self, replace(batch, **{field: getattr(now, field) for field in fields}), *args, **named)

    return Batches, name, move


def heard(step: str, hear: Callable[[Process, tuple[Any, ...], _Method], Awaitable[Any]]) -> tuple[Any, str, _Method]:
    """A process that deals with the reply to one kind of step in its own way."""
    original = Process.take

    async def take(self: Process, name: str, action: Any, *about: Any) -> Any:
        async def ask() -> Any:
            return await original(self, name, action, *about)

        return await hear(self, about, ask) if name == step else await ask()

    return Process, "take", take


async def fence_nobody(self: ModelStream, owner: str) -> None:
    return


async def read_and_fence(self: ModelStream, batch: Batch) -> BatchPart | None:
    marker = await self._read(batch)
    await self._fence(batch.owner)
    return sent_by_owner(marker, batch)


_read = ModelStream._read


async def take_errors_for_nothing(self: ModelStream, batch: Batch) -> Marker | None:
    try:
        return await _read(self, batch)
    except Unavailable:
        return None


async def transact_twice(self: ModelLane, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
    await self._append(batch, Content(Sent(batch.id, part.number, self.id, topic, records), None))
    await self._commit(batch)
    marker = Marker((batch.job_id, batch.slot), batch.id, batch.ordinal, self.id, part)
    await self._append(batch, Content(None, marker))
    await self._commit(batch)


_produce = ModelLane.produce


async def believe_commit(self: ModelLane, *args: Any) -> None:
    try:
        await _produce(self, *args)
    except LaneLost:
        return


async def believe_abort(self: ModelLane, *args: Any) -> None:
    try:
        await _produce(self, *args)
    except LaneLost as lost:
        raise Aborted(str(lost), final=False) from lost


async def believe_take(process: Process, about: tuple[Any, ...], ask: _Method) -> Any:
    try:
        return await ask()
    except Unavailable:
        batch, owner = about
        return replace(batch, status=BatchStatus.SENDING, owner=owner, attempts=batch.attempts + 1)


async def retry_losers(process: Process, about: tuple[Any, ...], ask: _Method) -> Any:
    taken = await ask()
    if taken is None:
        raise Unavailable("somebody else has it")
    return taken


_transact = ModelLane._transact


async def start_no_lane(self: ModelStream) -> ModelLane:
    return ModelLane(self, f"lane-{secrets.token_hex(3)}")


async def start_and_transact(self: ModelLane, batch: Batch, *args: Any) -> None:
    await self._stream.gate.take("lane.start", self.start, self.id)
    await _transact(self, batch, *args)


async def heads_among_planned(self: Batches, job_id: str) -> list[Head]:
    query = {"job_id": job_id, "status": BatchStatus.PLANNED.value}
    lowest: dict[int, int] = {}
    async for document in self._batches.find(query):
        lowest[document["slot"]] = min(document["ordinal"], lowest.get(document["slot"], document["ordinal"]))
    return [Head(ordinal, planned=True) for ordinal in sorted(lowest.values())]


async def believe_settled(self: Batches, job_id: str, ordinals: Sequence[int]) -> set[int]:
    return set(ordinals)


_run = Sender.run


async def run_and_feed(self: Sender, task: SendBatch) -> None:
    await _run(self, task)
    batch = await self._store.batches.get(task.job_id, task.ordinal)
    if batch is not None:
        await self._feed.feed_successor(batch)


async def run_any_turn(self: Sender, task: SendBatch) -> None:
    batch = await self._store.batches.get(task.job_id, task.ordinal)
    await _run(self, task if batch is None else replace(task, turn=batch.turn))


_drop_unsent = Batches.drop_unsent


async def drop_owned(self: Batches, job_id: str, job_round: int = 0) -> int:
    owned = {"job_id": job_id, "status": BatchStatus.SENDING.value}
    await self._batches.update_many(owned, {"$set": {"status": BatchStatus.DROPPED.value, "settled": True}})
    return await _drop_unsent(self, job_id, job_round)


_view, _get_standing = Jobs.view, Jobs.get_standing


async def end_of(self: Jobs, job_id: str) -> int:
    batches: Any = self._jobs.database["batches"]
    found = [document async for document in batches.find({"job_id": job_id})]
    return len([each for each in found if each["status"] != "end"])


async def view_ended(self: Jobs, job_id: str) -> Job | None:
    job = await _view(self, job_id)
    if job is None or job.plan.end is not None or not (end := await end_of(self, job_id)):
        return job
    return replace(job, plan=replace(job.plan, end=end))


async def get_standing_ended(self: Jobs, job_id: str) -> Standing | None:
    standing = await _get_standing(self, job_id)
    if standing is None or standing.end is not None or not (end := await end_of(self, job_id)):
        return standing
    return replace(standing, end=end)


_add_page = Batches.add_page


async def add_stubbornly(self: Batches, batches: Sequence[Batch]) -> bool:
    for batch in batches:
        await _add_page(self, [batch])
    return True


async def end_without_entry(self: Finish, job_id: str) -> None:
    last = await self._store.batches.last(job_id)
    end = last.ordinal if isinstance(last, PlanEnd) else 0 if last is None else last.ordinal + 1
    await self._store.jobs.end_plan(job_id, end=end)


async def look_for_nothing(self: Upkeep) -> Found:
    return Found()


async def hold_nobody(self: Breaker, job_id: str) -> Job | None:
    return None


_move_each = GroupFlow._move_each


async def move_all_but_one(self: GroupFlow, job_keys: Sequence[str], move: Any) -> int:
    return await _move_each(self, job_keys[:-1], move)


async def move_blindly(self: Feedbacks, partition: str, start: Position, end: Position, session: Any) -> bool:
    change = {"$set": {"position": end.offset}}
    await self._positions.update_one({"_id": partition}, change, upsert=True, session=session)
    return True


async def note_first(self: Mailer, task: SendMail) -> None:
    job = await self._store.jobs.view(task.job_id)
    for due in job.mails if job is not None else ():
        if job is not None and (due.kind, due.at) == (task.kind, task.at):
            await self._store.mails.note_sent(job.key, due)
            await self._time.now()
            await self._deliver(job, due)


async def lease_to_all(self: Mails, *args: Any, **named: Any) -> bool:
    return True


async def look_once(process: Process, about: tuple[Any, ...], ask: _Method) -> Any:
    known: dict[str, Standing] = process.__dict__.setdefault("known", {})
    if about[0] not in known:
        known[about[0]] = await ask()
    return known[about[0]]
