"""What an operation does to the world, for every way in which it may come out.

`outcomes` lists the ways, the usual ones first; `perform` takes one of them. A reply that is lost leaves three
worlds: it happened, it did not, or it will happen later.
"""

from collections.abc import Iterator
from typing import Any

from shared.domain.jobs.batches import TRANSITIONS as BATCH_MOVES
from shared.domain.jobs.batches import BatchStatus
from shared.domain.jobs.jobs import TRANSITIONS as JOB_MOVES
from shared.domain.jobs.jobs import JobStatus
from tests.domain.protocol import operations as ops
from tests.domain.protocol.operations import FENCED, OK, REFUSED, SILENCE
from tests.domain.protocol.transactions import ended, fenced, shown, swap, with_actor, with_lane, with_new_lane
from tests.domain.protocol.world import (
    IN_FLIGHT,
    Entry,
    Faults,
    Flaw,
    Insert,
    Lane,
    Move,
    MoveJob,
    Piece,
    Promise,
    Rules,
    Violation,
    World,
    Write,
)

DONE, APPLIED, VOID, LATER, LAGGING = "done", "reply lost, applied", "reply lost, void", "reply lost, late", "lagging"
LOSSES = (APPLIED, VOID, LATER)
UNOWNED = frozenset({BatchStatus.PLANNED, BatchStatus.QUEUED})


def outcomes(world: World, rules: Rules, op: Any) -> list[Any]:
    """The ways in which the operation can come out now; none while it has to wait."""
    faults = world.faults
    match op:
        case ops.Deliver(queue):
            return sorted({message for message in world.messages if message.queue == queue})
        case Move() | Insert() | MoveJob():
            return [DONE, *(LOSSES if faults.silent else ())]
        case ops.Commit():
            return [DONE, *([LAGGING] if faults.lag else ()), *(LOSSES if faults.silent else ())]
        case ops.Append():
            return [DONE, *([REFUSED] if faults.refuse else ()), *([VOID] if faults.silent else ())]
        case ops.Abort():
            return [DONE, *((APPLIED, VOID) if faults.silent else ())]
        case ops.ReadMarker():
            return [DONE, *([VOID] if faults.silent else ())]
        case ops.Chore():
            return list(chores(world, rules)) if faults.chores else []
        case ops.Click():
            return list(clicks(world)) if faults.clicks else []
        case ops.Cut(after):
            return pages(after, world.devices)
        case _:
            return [DONE]


def chores(world: World, rules: Rules) -> Iterator[tuple[str, int]]:
    """What upkeep would find in this world."""
    if not world.job.open or rules.flaw is Flaw.NO_UPKEEP:
        return
    stopped = world.job.status is JobStatus.STOPPED
    dropped = UNOWNED | ({BatchStatus.SENDING} if rules.flaw is Flaw.DROPPED_OWNED else set())
    for ordinal, batch in enumerate(world.batches):
        if batch.status in IN_FLIGHT:
            yield "renew", ordinal
        if stopped and batch.status in dropped:
            yield "drop", ordinal
    if stopped:
        yield "close", 0
        return
    if not world.ended:
        yield "plan", 0
    if world.job.status is JobStatus.RUNNING:
        yield from (("feed", slot) for slot in range(rules.slots))


def clicks(world: World) -> Iterator[JobStatus]:
    """What a user may ask of an open job."""
    for status in (JobStatus.PAUSED, JobStatus.RUNNING, JobStatus.STOPPED):
        if world.job.open and status in JOB_MOVES[world.job.status]:
            yield status


def pages(after: int, devices: int) -> list[tuple[Entry, ...]]:
    """The ways to cut the next page: one or two batches of one or two devices, or the end."""
    if after == devices:
        return [(Entry(after, after, None),)]
    middles = range(after + 1, min(after + 2, devices) + 1)
    single = [(Entry(after, middle),) for middle in middles]
    double = [
        (Entry(after, middle), Entry(middle, upto))
        for middle in middles
        for upto in range(middle + 1, min(middle + 2, devices) + 1)
    ]
    return [*double, *single]


def perform(world: World, rules: Rules, index: int, op: Any, outcome: Any) -> tuple[World, Any]:
    """The world after the operation of this actor, and the reply."""
    match op:
        case Move() | Insert() | MoveJob():
            return write(world, op, outcome)
        case ops.Append() | ops.Commit() | ops.Abort() | ops.Start():
            return on_lane(world, rules, index, op, outcome)
        case ops.Fence(lane):
            if rules.patient:
                raise Violation(Promise.FENCED, lane)
            return fenced(world, lane), OK
        case ops.ReadMarker(slot):
            return (world, world.markers[slot]) if outcome == DONE else (spend(world, "silent"), SILENCE)
        case ops.Deliver() | ops.Ack() | ops.Requeue() | ops.Publish():
            return on_broker(world, index, op, outcome)
        case ops.Chore():
            return spend(world, "chores"), outcome
        case ops.Click():
            return spend(world, "clicks"), outcome
        case ops.Cut():
            return world, outcome
        case _:
            return world, look(world, rules, op)


def look(world: World, rules: Rules, op: Any) -> Any:
    """The reply to a query."""
    match op:
        case ops.ReadJob():
            return world.job.status
        case ops.Read(ordinal):
            return world.batches[ordinal] if ordinal < len(world.batches) else None
        case ops.Lowest(slot, statuses):
            lowest = world.lowest(slot, rules.slots, frozenset(statuses))
            return None if lowest is None else (lowest, world.batches[lowest])
        case ops.ReadLast():
            return (len(world.entries) - 1, world.entries[-1] if world.entries else Entry(0, 0))
        case ops.Done():
            stopped = world.job.status is JobStatus.STOPPED
            unended = rules.flaw is (Flaw.UNENDED_STOP if stopped else Flaw.OPEN_END)
            return world.all_settled and (world.ended or unended)
        case _:
            raise TypeError(op)


def spend(world: World, fault: str) -> World:
    """One fault of this kind fewer to come."""
    left = getattr(world.faults, fault)
    if left < 0:
        return world
    faults: Any = world.faults._asdict() | {fault: left - 1}
    return world._replace(faults=Faults(**faults))


def write(world: World, wanted: Write, outcome: str) -> tuple[World, Any]:
    """A compare-and-set or an insert."""
    if outcome == DONE:
        return applied(world, wanted)
    world = spend(world, "silent")
    if outcome == APPLIED:
        world, _ = applied(world, wanted)
    elif outcome == LATER:
        world = world._replace(late=(*world.late, wanted))
    return world, SILENCE


def applied(world: World, wanted: Write) -> tuple[World, Any]:
    """The world with the write in it, and what the database answers."""
    match wanted:
        case MoveJob(sources, target, close):
            if world.job.status not in sources or not world.job.open:
                return world, False
            if target is not world.job.status and target not in JOB_MOVES[world.job.status]:
                raise Violation(Promise.ILLEGAL, repr(wanted))
            return world._replace(job=world.job._replace(status=target, open=not close)), True
        case Insert(ordinal, entry):
            if ordinal < len(world.entries):
                return world, False
            if ordinal > len(world.entries):
                raise Violation(Promise.TORN, "an entry after a gap")
            return world._replace(entries=(*world.entries, entry)), True
        case Move():
            batch = world.entries[wanted.ordinal]
            if not wanted.matches(batch):
                return world, None
            if batch.status is None or wanted.target not in BATCH_MOVES[batch.status] | {batch.status}:
                raise Violation(Promise.ILLEGAL, repr(wanted))
            moved = wanted.after(batch)
            return world._replace(entries=swap(world.entries, wanted.ordinal, moved)), moved


def on_broker(world: World, index: int, op: Any, outcome: Any) -> tuple[World, Any]:
    """Messages in and out of the broker and the actor's hands."""
    actor = world.actors[index]
    match op:
        case ops.Deliver():
            left = list(world.messages)
            left.remove(outcome)
            held = actor._replace(held=outcome, cut=False)
            return with_actor(world._replace(messages=tuple(left)), index, held), (outcome, actor.lane)
        case ops.Publish(message):
            return world._replace(messages=tuple(sorted((*world.messages, message)))), OK
        case ops.Requeue():
            return released(world, index), OK
        case _:
            return with_actor(world, index, actor._replace(held=None, cut=False)), OK


def released(world: World, index: int) -> World:
    """The actor's message is the broker's again, unless it is already."""
    actor = world.actors[index]
    if actor.held is not None and not actor.cut:
        world = world._replace(messages=tuple(sorted((*world.messages, actor.held))))
    return with_actor(world, index, actor._replace(held=None, cut=False))


def on_lane(world: World, rules: Rules, index: int, op: Any, outcome: str) -> tuple[World, Any]:
    """A step of the actor's own transaction. Anything but a confirmed commit or abort costs it the lane."""
    actor = world.actors[index]
    lane = world.lane(actor.lane)
    if isinstance(op, ops.Start):
        world = fenced(world, actor.lane)
        return with_actor(world, index, actor._replace(epoch=world.lane(actor.lane).epoch)), OK
    if lane.epoch != actor.epoch:
        return with_new_lane(world, rules, index), FENCED
    if isinstance(op, ops.Append) and outcome in (DONE, REFUSED):
        return append(world, lane, op.piece, outcome)
    if outcome in (DONE, LAGGING):
        world = world if outcome == DONE else spend(world, "lag")
        return ended(world, lane, isinstance(op, ops.Commit), lagging=outcome == LAGGING), OK
    world = spend(world, "silent")
    if outcome == APPLIED:
        world = ended(world, lane, isinstance(op, ops.Commit))
    elif outcome == LATER:
        world = with_lane(world, lane._replace(asked=True))
    return with_new_lane(world, rules, index), SILENCE


def append(world: World, lane: Lane, piece: Piece, outcome: str) -> tuple[World, str]:
    """Into the open transaction; what an earlier commit left hidden shows before a new one begins."""
    world = shown(world, lane.id)
    if outcome == REFUSED:
        return spend(world, "refuse"), REFUSED
    return with_lane(world, world.lane(lane.id)._replace(content=(*lane.content, piece))), OK
