"""What an operation does to the world, for every way in which it may come out.

`outcomes` lists the ways, the usual ones first; `perform` takes one of them. A reply that is lost leaves three worlds: it
happened, it did not, or it will happen later.
"""

from collections.abc import Iterator
from typing import Any

from shared.domain.batches import BatchStatus
from shared.domain.batches import TRANSITIONS as BATCH_MOVES
from shared.domain.jobs import TRANSITIONS as JOB_MOVES
from shared.domain.jobs import JobStatus
from tests.domain.protocol import programs as ops
from tests.domain.protocol.programs import FENCED, OK, REFUSED, SILENCE
from tests.domain.protocol.world import (
    IN_FLIGHT,
    Actor,
    Entry,
    Flaw,
    Insert,
    Lane,
    Move,
    MoveJob,
    Piece,
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
                raise Violation("a healthy lane is fenced", lane)
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
            ordinal = world.lowest(slot, rules.slots, frozenset(statuses))
            return None if ordinal is None else (ordinal, world.batches[ordinal])
        case ops.ReadLast():
            return (len(world.entries) - 1, world.entries[-1] if world.entries else Entry(0, 0))
        case ops.Done():
            return world.all_settled and (world.ended or rules.flaw in (Flaw.OPEN_END, Flaw.UNENDED_STOP))
        case _:
            raise TypeError(op)


def spend(world: World, fault: str) -> World:
    """One fault of this kind fewer to come."""
    left = getattr(world.faults, fault)
    return world if left < 0 else world._replace(faults=world.faults._replace(**{fault: left - 1}))


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
                raise Violation("illegal move", repr(wanted))
            return world._replace(job=world.job._replace(status=target, open=not close)), True
        case Insert(ordinal, entry):
            if ordinal < len(world.entries):
                return world, False
            if ordinal > len(world.entries):
                raise Violation("torn plan", "an entry after a gap")
            return world._replace(entries=(*world.entries, entry)), True
        case Move(ordinal):
            batch = world.entries[ordinal]
            if not wanted.matches(batch):
                return world, None
            if batch.status is None or wanted.target not in BATCH_MOVES[batch.status] | {batch.status}:
                raise Violation("illegal move", repr(wanted))
            moved = wanted.after(batch)
            return world._replace(entries=swap(world.entries, ordinal, moved)), moved


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


def ended(world: World, lane: Lane, commit: bool, *, lagging: bool = False) -> World:
    """The transaction is committed, or rolled back."""
    if not commit:
        return with_lane(world, lane._replace(content=(), asked=False))
    records = tuple((piece.ordinal, piece.receipt) for piece in lane.content if piece.records)
    markers = tuple(piece for piece in lane.content if piece.marker)
    world = world._replace(topic=tuple(sorted((*world.topic, *records))))
    world = superseded(world, {slot_of(world, piece) for piece in markers})
    world = with_lane(world, lane._replace(content=(), asked=False, hidden=markers))
    return world if lagging else shown(world, lane.id)


def slot_of(world: World, piece: Piece) -> int:
    """The slot that the marker is for."""
    return piece.ordinal % len(world.markers)


def superseded(world: World, slots: set[int]) -> World:
    """Earlier markers of these slots that nobody saw are never seen: of two, Kafka keeps the one that was written later,
    even where the earlier one's transaction is the last to be completed."""
    for lane in world.lanes:
        world = with_lane(world, lane._replace(hidden=tuple(p for p in lane.hidden if slot_of(world, p) not in slots)))
    return world


def shown(world: World, id: str) -> World:
    """The markers of the lane's last commit can be read by everybody."""
    lane = world.lane(id)
    for piece in lane.hidden:
        world = world._replace(markers=swap(world.markers, slot_of(world, piece), (piece.ordinal, piece.receipt)))
    return with_lane(world, lane._replace(hidden=()))


def fenced(world: World, id: str) -> World:
    """A successor has started: what was decided shows, what was open is rolled back, the next epoch counts."""
    lane = shown(world, id).lane(id)
    return with_lane(shown(world, id), Lane(id, lane.epoch + 1))


def with_actor(world: World, index: int, actor: Actor) -> World:
    """The world with this actor in it."""
    return world._replace(actors=swap(world.actors, index, actor))


def with_lane(world: World, lane: Lane) -> World:
    """The world with this lane in it; one of which nothing is to be told needs no mention."""
    others = [other for other in world.lanes if other.id != lane.id]
    told = others if lane == Lane(lane.id) else [*others, lane]
    return world._replace(lanes=tuple(sorted(told)))


def with_new_lane(world: World, rules: Rules, index: int) -> World:
    """The actor gives its lane up for another one."""
    actor = world.actors[index]
    if rules.flaw is Flaw.REUSED_LANE:
        world = fenced(world, actor.lane)
        return with_actor(world, index, actor._replace(epoch=world.lane(actor.lane).epoch))
    name, _, number = actor.lane.partition(".")
    return with_actor(world, index, actor._replace(lane=f"{name}.{int(number) + 1}", epoch=0))


def swap(items: tuple[Any, ...], index: int, item: Any) -> tuple[Any, ...]:
    """The tuple with another item there."""
    return (*items[:index], item, *items[index + 1 :])
