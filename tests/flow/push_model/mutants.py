"""The protocol, broken on purpose: each mutant changes one thing of the product, or of what it relies on.

Three changes look like faults and are none, since something else stands behind them. They are no mutants, and each
would have to become one if that were removed:

- Recovery takes the marker of an earlier part for that of the last take. The marker says where the rest begins, and
  that is where the batch stands already.
- A lane that was lost starts again under its id. Every move of an owned batch compares its take as well.
- A chain's head is looked for status by status. The feed looks whether its predecessor is settled ("greedy feed" takes
  both away).
"""

import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack
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
from tests.flow.push_model.database import Database
from tests.flow.push_model.promises import Promise
from tests.flow.push_model.simulation import Process
from tests.flow.push_model.stream import ModelLane, ModelStream, sent_by_owner
from tests.flow.push_model.transactions import Content, Marker, Sent
from tests.flow.push_model.weather import Weather
from tests.flow.push_model.world import Failure, World, replaced

_Method = Callable[..., Awaitable[Any]]


class Mutant(NamedTuple):
    """What is broken; the promises of which one breaks first; how it is broken (class, method, other method); and a
    seed that shows it, in the weather that it draws or in this one."""

    what: str
    breaks: frozenset[Promise]
    changes: Sequence[tuple[Any, str, Any]]
    seed: int
    weather: Weather | None

    def find(self, database: Database, seeds: Iterable[int]) -> tuple[int, Failure] | None:
        """The first of these seeds that shows it, and how."""
        with ExitStack() as stack:
            for target, name, value in self.changes:
                stack.enter_context(replaced(target, name, value))
            for seed in seeds:
                try:
                    World(database, seed, self.weather).run()
                except Failure as failure:
                    return seed, failure
        return None


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


_transact = ModelLane._transact


async def _start_no_lane(self: ModelStream) -> ModelLane:
    return ModelLane(self, f"lane-{secrets.token_hex(3)}")


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


async def _look_once(process: Process, about: tuple[Any, ...], ask: _Method) -> Any:
    known: dict[str, Standing] = process.__dict__.setdefault("known", {})
    if about[0] not in known:
        known[about[0]] = await ask()
    return known[about[0]]


def _mutant(
    what: str, breaks: str, *changes: tuple[Any, str, Any], seed: int, weather: Weather | None = None
) -> Mutant:
    return Mutant(what, frozenset(Promise[name] for name in breaks.split()), changes, seed, weather)


_COMMITS = Weather(
    length=200,
    uneven=True,
    small=True,
    unasked=0.04,
    unanswered=0.03,
    late=0.05,
    focus="lane.commit",
    doubled=0.06,
    hurry=0.02,
)
_LAGS = Weather(length=200, uneven=True, small=True, unanswered=0.05, focus="lane.commit", lag=0.8, doubled=0.06)
_MARKERS = Weather(
    length=400, patience=0.0, uneven=True, unasked=0.06, unanswered=0.02, focus="marker", dies=0.04, doubled=0.03
)
_TAKES = Weather(
    length=200, uneven=True, small=True, unasked=0.01, unanswered=0.01, late=0.01, focus="batches.take", doubled=0.06
)
_LOST = Weather(length=250, uneven=True, small=True, doubled=0.1, unasked=0.03, focus="lane.commit", join=0.1)
_PARTS = Weather(length=250, uneven=True, small=True, doubled=0.1, join=0.2)
_LOST_PARTS = Weather(length=200, uneven=True, small=True, doubled=0.1, unanswered=0.06, focus="lane.commit", join=0.25)
_TWICE = Weather(length=200, uneven=True, small=True, doubled=0.1)
_SLOW = Weather(length=250, patience=1.0, uneven=True, small=True, hurry=0.2)
_CLICKS = Weather(length=200, uneven=True, click=0.1)
_PLANS = Weather(length=150, uneven=True, doubled=0.1, join=0.1, sleeps=0.03, hurry=0.03)
_PURGES = Weather(length=200, small=True, purged=0.3)

MUTANTS = {
    "no fence": _mutant(
        "the marker is read without fencing the owner",
        "TWICE UNTRUE",
        (ModelStream, "_fence", _fence_nobody),
        seed=5,
        weather=_COMMITS,
    ),
    "marker before fence": _mutant(
        "the marker is read, and then the owner is fenced",
        "TWICE UNTRUE",
        (ModelStream, "recover", _read_and_fence),
        seed=0,
        weather=_LAGS,
    ),
    "error is no marker": _mutant(
        "a failed read of the marker counts as no marker",
        "TWICE UNTRUE",
        (ModelStream, "_read", _take_errors_for_nothing),
        seed=4,
        weather=_MARKERS,
    ),
    "marker outside": _mutant(
        "the marker has a transaction of its own, after the records",
        "TWICE UNTRUE",
        (ModelLane, "_transact", _transact_twice),
        seed=2,
        weather=_COMMITS,
    ),
    "blind disown": _mutant(
        "recovery, or an aborted owner, clears whatever owner there is",
        "TWICE UNTRUE",
        _blind("disown", "owner", "attempts"),
        seed=43,
        weather=_LOST,
    ),
    "blind advance": _mutant(
        "a batch goes on to its next part whoever owns it by now",
        "TWICE UNTRUE",
        _blind("advance", "owner", "attempts"),
        seed=2,
        weather=_PARTS,
    ),
    "believed commit": _mutant(
        "a commit without a reply counts as done",
        "UNTRUE",
        (ModelLane, "produce", _believe_commit),
        seed=0,
        weather=_COMMITS,
    ),
    "believed abort": _mutant(
        "a commit without a reply counts as rolled back",
        "TWICE UNTRUE",
        (ModelLane, "produce", _believe_abort),
        seed=1,
        weather=_COMMITS,
    ),
    "believed take": _mutant(
        "a take without a reply counts as won",
        "TWICE UNTRUE",
        _heard("batches.take", _believe_take),
        seed=5,
        weather=_TAKES,
    ),
    "late start": _mutant(
        "a lane is started after its id was written to the batch",
        "TWICE UNTRUE",
        (ModelStream, "_start_lane", _start_no_lane),
        (ModelLane, "_transact", _start_and_transact),
        seed=29,
        weather=_COMMITS,
    ),
    "greedy feed": _mutant(
        "a chain is fed its lowest planned batch, though an earlier one is unsettled",
        "CROWDED",
        (Batches, "heads", _heads_among_planned),
        (Batches, "find_settled", _believe_settled),
        seed=8,
        weather=_CLICKS,
    ),
    "successor of parked": _mutant(
        "who puts a batch back to planned goes on with its successor",
        "CROWDED",
        (Sender, "run", _run_and_feed),
        seed=16,
        weather=_CLICKS,
    ),
    "ignored turn": _mutant(
        "messages of another turn are worked on", "FENCED", (Sender, "run", _run_any_turn), seed=0, weather=_SLOW
    ),
    "tried by losers": _mutant(
        "who loses a batch tries again",
        "CHURN FENCED",
        _heard("batches.take", _retry_losers),
        seed=113,
        weather=_TWICE,
    ),
    "dropped owned": _mutant(
        "stop drops a batch that a lane owns",
        "ILLEGAL",
        (Batches, "drop_unsent", _drop_owned),
        seed=5,
        weather=_CLICKS,
    ),
    "open end": _mutant(
        "a job is completed as soon as all batches that are there are settled",
        "TOTALS",
        (Jobs, "view", _view_ended),
        (Jobs, "get_standing", _get_standing_ended),
        seed=59,
    ),
    "stubborn planner": _mutant(
        "an overtaken planner goes on with the rest of its page",
        "TORN",
        (Batches, "add_page", _add_stubbornly),
        seed=0,
        weather=_PLANS,
    ),
    "unended stop": _mutant(
        "a stopped job is closed without ending its plan",
        "TOTALS NEVER",
        (Finish, "_end_plan", _end_without_entry),
        seed=3,
        weather=_CLICKS,
    ),
    "no upkeep": _mutant(
        "nobody looks for lost work", "NEVER", (Upkeep, "run_once", _look_for_nothing), seed=2, weather=_PURGES
    ),
    "any take": _mutant(
        "a move of an owned batch matches its lane, and not the take",
        "TWICE UNTRUE",
        _blind("settle", "attempts"),
        _blind("advance", "attempts"),
        _blind("disown", "attempts"),
        seed=12,
        weather=_LOST_PARTS,
    ),
    "stale part": _mutant(
        "a take does not see that another one was there since its part was read",
        "TWICE UNTRUE",
        _blind("take", "attempts"),
        seed=16,
        weather=_PARTS,
    ),
    "remembered gate": _mutant(
        "a worker looks at a job's status once", "BEHIND", _heard("jobs.get_standing", _look_once), seed=0
    ),
}
"""By their names."""
