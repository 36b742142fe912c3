"""The protocol, broken on purpose: each mutant changes one thing of the product, or of what it relies on."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from typing import Any, NamedTuple

from msgspec.structs import replace

from services.worker.push.send import Sender
from shared.domain.errors import LaneLost, Unavailable
from shared.domain.jobs.batches import Batch, BatchPart, BatchStatus
from shared.domain.jobs.jobs import Job, Standing
from shared.domain.jobs.tasks import SendBatch
from shared.flow.jobs.finish import Finish
from shared.flow.jobs.upkeep import Found, Upkeep
from shared.store.jobs.batches import Batches, Head, PlanEnd
from shared.store.jobs.jobs import Jobs
from shared.stream import Aborted
from tests.flow.push_model import stream
from tests.flow.push_model.promises import Promise
from tests.flow.push_model.simulation import Process
from tests.flow.push_model.stream import ModelLane, ModelStream, sent_by_owner
from tests.flow.push_model.transactions import Content, Marker, Sent
from tests.flow.push_model.world import replaced

_Method = Callable[..., Awaitable[Any]]


class Mutant(NamedTuple):
    """What is broken, the promises of which one breaks first, and how it is broken: (class, method, other method)."""

    what: str
    breaks: frozenset[Promise]
    changes: Sequence[tuple[Any, str, Any]]

    def applied(self) -> AbstractContextManager[Any]:
        """The product, so changed."""
        stack = ExitStack()
        for target, name, value in self.changes:
            stack.enter_context(replaced(target, name, value))
        return stack


def _blind(name: str, *fields: str) -> tuple[Any, str, _Method]:
    """A move of a batch that does not compare these fields: it takes them as they are by now."""
    original = getattr(Batches, name)

    async def move(self: Batches, batch: Batch, *args: Any, **named: Any) -> Any:
        now = await self.get(batch.job_id, batch.ordinal)
        return await original(self, replace(batch, **{field: getattr(now, field) for field in fields}), *args, **named)

    return Batches, name, move


def _heard(step: str, hear: Callable[[Process, tuple[Any, ...], _Method], Awaitable[Any]]) -> tuple[Any, str, _Method]:
    """A process that deals with the reply to one kind of step in its own way."""
    original = Process.take

    async def take(self: Process, name: str, action: Any, *about: Any) -> Any:
        async def ask() -> Any:
            return await original(self, name, action, *about)

        return await hear(self, about, ask) if name == step else await ask()

    return Process, "take", take


async def _fence_nobody(self: ModelStream, owner: str) -> None:
    return


async def _read_and_fence(self: ModelStream, batch: Batch) -> BatchPart | None:
    marker = await self._read(batch)
    await self._fence(batch.owner)
    return sent_by_owner(marker, batch)


_read = ModelStream._read


async def _take_errors_for_nothing(self: ModelStream, batch: Batch) -> Marker | None:
    try:
        return await _read(self, batch)
    except Unavailable:
        return None


async def _transact_twice(self: ModelLane, batch: Batch, topic: str, records: Sequence[bytes], part: BatchPart) -> None:
    await self._append(batch, Content(Sent(batch.id, part.number, self.id, topic, records), None))
    await self._commit(batch)
    marker = Marker((batch.job_id, batch.slot), batch.id, batch.ordinal, self.id, part)
    await self._append(batch, Content(None, marker))
    await self._commit(batch)


_produce = ModelLane.produce


async def _believe_commit(self: ModelLane, *args: Any) -> None:
    try:
        await _produce(self, *args)
    except LaneLost:
        return


async def _believe_abort(self: ModelLane, *args: Any) -> None:
    try:
        await _produce(self, *args)
    except LaneLost as lost:
        raise Aborted(str(lost), final=False) from lost


async def _believe_take(process: Process, about: tuple[Any, ...], ask: _Method) -> Any:
    try:
        return await ask()
    except Unavailable:
        batch, owner = about
        return replace(batch, status=BatchStatus.SENDING, owner=owner, attempts=batch.attempts + 1)


async def _retry_losers(process: Process, about: tuple[Any, ...], ask: _Method) -> Any:
    taken = await ask()
    if taken is None:
        raise Unavailable("somebody else has it")
    return taken


@asynccontextmanager
async def _reuse_lane(self: ModelStream) -> Any:
    async with self._permits:
        lane = self._idle.pop() if self._idle else await self._start_lane()
        try:
            yield lane
        finally:
            await lane.start()
            lane.usable = True
            self._idle.append(lane)


_transact = ModelLane._transact


async def _start_no_lane(self: ModelStream) -> ModelLane:
    lane = ModelLane(self, f"lane-{stream.secrets.token_hex(3)}")
    return lane


async def _start_and_transact(self: ModelLane, batch: Batch, *args: Any) -> None:
    await self._stream.gate.take("lane.start", self.start, self.id)
    await _transact(self, batch, *args)


async def _heads_among_planned(self: Batches, job_id: str) -> list[Head]:
    query = {"job_id": job_id, "status": BatchStatus.PLANNED.value}
    lowest: dict[int, int] = {}
    async for document in self._batches.find(query):
        lowest[document["slot"]] = min(document["ordinal"], lowest.get(document["slot"], document["ordinal"]))
    return [Head(ordinal, planned=True) for ordinal in sorted(lowest.values())]


async def _believe_settled(self: Batches, job_id: str, ordinals: Sequence[int]) -> set[int]:
    return set(ordinals)


_run = Sender.run


async def _run_and_feed(self: Sender, task: SendBatch) -> None:
    await _run(self, task)
    batch = await self._store.batches.get(task.job_id, task.ordinal)
    if batch is not None:
        await self._feed.feed_successor(batch)


async def _run_any_turn(self: Sender, task: SendBatch) -> None:
    batch = await self._store.batches.get(task.job_id, task.ordinal)
    await _run(self, task if batch is None else replace(task, turn=batch.turn))


_drop_unsent = Batches.drop_unsent


async def _drop_owned(self: Batches, job_id: str) -> int:
    owned = {"job_id": job_id, "status": BatchStatus.SENDING.value}
    await self._batches.update_many(owned, {"$set": {"status": BatchStatus.DROPPED.value, "settled": True}})
    return await _drop_unsent(self, job_id)


_view, _get_standing = Jobs.view, Jobs.get_standing


async def _end_of(self: Jobs, job_id: str) -> int:
    batches: Any = self._jobs.database["batches"]
    found = [document async for document in batches.find({"job_id": job_id})]
    return len([each for each in found if each["status"] != "end"])


async def _view_ended(self: Jobs, job_id: str) -> Job | None:
    job = await _view(self, job_id)
    if job is None or job.plan.end is not None or not (end := await _end_of(self, job_id)):
        return job
    return replace(job, plan=replace(job.plan, end=end))


async def _get_standing_ended(self: Jobs, job_id: str) -> Standing | None:
    standing = await _get_standing(self, job_id)
    if standing is None or standing.end is not None or not (end := await _end_of(self, job_id)):
        return standing
    return replace(standing, end=end)


_add_page = Batches.add_page


async def _add_stubbornly(self: Batches, batches: Sequence[Batch]) -> bool:
    for batch in batches:
        await _add_page(self, [batch])
    return True


async def _end_without_entry(self: Finish, job_id: str) -> None:
    last = await self._store.batches.last(job_id)
    end = last.ordinal if isinstance(last, PlanEnd) else 0 if last is None else last.ordinal + 1
    await self._store.jobs.end_plan(job_id, end=end)


async def _look_for_nothing(self: Upkeep) -> Found:
    return Found()


def _accept_any_part(marker: Marker | None, batch: Batch) -> BatchPart | None:
    if marker is None or (marker.batch, marker.lane) != (batch.id, batch.owner):
        return None
    return marker.part


async def _look_once(process: Process, about: tuple[Any, ...], ask: _Method) -> Any:
    known: dict[str, Standing] = process.__dict__.setdefault("known", {})
    if about[0] not in known:
        known[about[0]] = await ask()
    return known[about[0]]


def _any_of(*promises: Promise) -> frozenset[Promise]:
    return frozenset(promises)


_LOST = _any_of(Promise.TWICE, Promise.UNTRUE)

MUTANTS = {
    "no fence": Mutant("the marker is read without fencing the owner", _LOST, [(ModelStream, "_fence", _fence_nobody)]),
    "marker before fence": Mutant(
        "the marker is read, and then the owner is fenced", _LOST, [(ModelStream, "recover", _read_and_fence)]
    ),
    "error is no marker": Mutant(
        "a failed read of the marker counts as no marker", _LOST, [(ModelStream, "_read", _take_errors_for_nothing)]
    ),
    "marker outside": Mutant(
        "the marker has a transaction of its own, after the records",
        _LOST,
        [(ModelLane, "_transact", _transact_twice)],
    ),
    "blind disown": Mutant(
        "recovery, or an aborted owner, clears whatever owner there is", _LOST, [_blind("disown", "owner", "attempts")]
    ),
    "blind settle": Mutant(
        "a batch is settled whoever owns it by now", _LOST, [_blind("settle", "owner", "attempts")]
    ),
    "blind advance": Mutant(
        "a batch goes on to its next part whoever owns it by now", _LOST, [_blind("advance", "owner", "attempts")]
    ),
    "believed commit": Mutant("a commit without a reply counts as done", _LOST, [(ModelLane, "produce", _believe_commit)]),
    "believed abort": Mutant(
        "a commit without a reply counts as rolled back", _LOST, [(ModelLane, "produce", _believe_abort)]
    ),
    "believed take": Mutant("a take without a reply counts as won", _LOST, [_heard("batches.take", _believe_take)]),
    "reused lane": Mutant("a lane that was lost starts again under its id", _LOST, [(ModelStream, "lane", _reuse_lane)]),
    "late start": Mutant(
        "a lane is started after its id was written to the batch",
        _LOST,
        [(ModelStream, "_start_lane", _start_no_lane), (ModelLane, "_transact", _start_and_transact)],
    ),
    "greedy feed": Mutant(
        "a chain is fed its lowest planned batch, though an earlier one is unsettled",
        _any_of(Promise.CROWDED),
        [(Batches, "heads", _heads_among_planned), (Batches, "find_settled", _believe_settled)],
    ),
    "successor of parked": Mutant(
        "who puts a batch back to planned goes on with its successor",
        _any_of(Promise.CROWDED),
        [(Sender, "run", _run_and_feed)],
    ),
    "ignored turn": Mutant(
        "messages of another turn are worked on", _any_of(Promise.FENCED, Promise.CHURN), [(Sender, "run", _run_any_turn)]
    ),
    "requeued losers": Mutant(
        "who loses a batch tries again",
        _any_of(Promise.CHURN, Promise.FENCED),
        [_heard("batches.take", _retry_losers)],
    ),
    "dropped owned": Mutant(
        "stop drops a batch that a lane owns", _any_of(Promise.ILLEGAL), [(Batches, "drop_unsent", _drop_owned)]
    ),
    "open end": Mutant(
        "a job is completed as soon as all batches that are there are settled",
        _any_of(Promise.TOTALS),
        [(Jobs, "view", _view_ended), (Jobs, "get_standing", _get_standing_ended)],
    ),
    "stubborn planner": Mutant(
        "an overtaken planner goes on with the rest of its page",
        _any_of(Promise.TORN),
        [(Batches, "add_page", _add_stubbornly)],
    ),
    "unended stop": Mutant(
        "a stopped job is closed without ending its plan",
        _any_of(Promise.TOTALS),
        [(Finish, "_end_plan", _end_without_entry)],
    ),
    "no upkeep": Mutant(
        "nobody looks for lost work", _any_of(Promise.NEVER), [(Upkeep, "run_once", _look_for_nothing)]
    ),
    "any part": Mutant(
        "recovery takes the marker of an earlier part for that of the last take",
        _LOST,
        [(stream, "sent_by_owner", _accept_any_part)],
    ),
    "any take": Mutant(
        "a move of an owned batch matches its lane, and not the take",
        _LOST,
        [_blind("settle", "attempts"), _blind("advance", "attempts"), _blind("disown", "attempts")],
    ),
    "stale part": Mutant(
        "a take does not see that another one was there since its part was read", _LOST, [_blind("take", "attempts")]
    ),
    "remembered gate": Mutant(
        "a worker looks at a job's status once", _any_of(Promise.BEHIND), [_heard("jobs.get_standing", _look_once)]
    ),
}
"""By their names."""
