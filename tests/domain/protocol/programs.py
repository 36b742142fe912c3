"""What workers, planners, upkeep and users do, step by step, as the design tells it.

Each program is a generator: a `yield` is an await of the real code, so whatever others do can happen there, or the process
can die there. It yields an operation and is sent the reply. Nothing but the arguments and the replies decides what it does.

Two rules for whoever changes a program: locals are hashable, and no value that matters may live only in an expression around
a `yield` (`automaton.py` tells states apart by position and locals).
"""

from collections.abc import Generator
from typing import Any, NamedTuple

from shared.domain.batches import BatchStatus
from shared.domain.jobs import PAUSABLE, RESUMABLE, JobStatus, sources
from tests.domain.protocol.world import IN_FLIGHT, Entry, Flaw, Insert, Message, Move, MoveJob, Piece, Rules

PLANNED, QUEUED, SENDING = BatchStatus.PLANNED, BatchStatus.QUEUED, BatchStatus.SENDING
UNSETTLED = (PLANNED, QUEUED, SENDING)

OK = "ok"
FENCED = "fenced"  # Kafka says that this lane has a successor
REFUSED = "refused"  # Kafka does not want a record
SILENCE = "silence"  # no reply: it happened, or did not, or will


class Deliver(NamedTuple):
    """Wait for a message; the reply is the message and the lane to use."""

    queue: str


class Ack(NamedTuple):
    """Done with the message."""


class Requeue(NamedTuple):
    """The message back into the queue."""


class Publish(NamedTuple):
    """A message onto the broker."""

    message: Message


class ReadJob(NamedTuple):
    """The job's status."""


class Read(NamedTuple):
    """A batch."""

    ordinal: int


class Lowest(NamedTuple):
    """(ordinal, batch) of the chain's lowest one in these statuses, or None."""

    slot: int
    statuses: tuple[BatchStatus, ...] = UNSETTLED


class ReadLast(NamedTuple):
    """(ordinal, entry) of the plan's last entry; ordinal -1 where there is none."""


class Done(NamedTuple):
    """Whether the plan has its end and all batches are settled."""


class Cut(NamedTuple):
    """A page of the audience behind this device, as entries; rows come and go, so two cuts may differ."""

    after: int


class Fence(NamedTuple):
    """Start a producer with this id: abort what is open, fail what it tries later."""

    lane: str


class ReadMarker(NamedTuple):
    """(ordinal, receipt) of the slot's marker, None, or SILENCE."""

    slot: int


class Start(NamedTuple):
    """Start the own lane."""


class Append(NamedTuple):
    """Into the lane's transaction."""

    piece: Piece


class Commit(NamedTuple):
    """The lane's transaction."""


class Abort(NamedTuple):
    """The lane's transaction."""


class Chore(NamedTuple):
    """Upkeep's look-out: something that may need doing, and where."""


class Click(NamedTuple):
    """A user's decision: the status wanted."""


Program = Generator[NamedTuple, Any, Any]


def worker(rules: Rules) -> Program:
    """Take one message and bring its batch as far as it goes."""
    message, lane = yield Deliver("send")
    lost = yield from send(rules, message.ordinal, message.turn, lane)
    back = lost and rules.flaw is Flaw.REQUEUED_LOSERS
    if lost and rules.self_recovery:
        back = yield from recover_own(rules, message.ordinal, lane)
    yield Requeue() if back else Ack()


def send(rules: Rules, ordinal: int, turn: int, lane: str) -> Program:
    """recover, gate, take, produce, settle, feed. True where the batch, or the lane, was lost to somebody."""
    batch = yield Read(ordinal)
    if batch.turn != turn and rules.flaw is not Flaw.IGNORED_TURN:
        return False
    if batch.settled:
        yield from chain_of(rules, ordinal)
        return False
    if batch.owner:
        free = yield from recover(rules, ordinal, batch.owner)
        if not free:
            return False
    wanted = None if rules.flaw is Flaw.IGNORED_TURN else turn
    passed = yield from gate(rules, ordinal, wanted, batch.attempts)
    if not passed:
        return False
    taken = yield from move(rules, Move(ordinal, (QUEUED,), SENDING, turn=wanted, take=lane))
    if taken is None:
        return True
    return (yield from produce(rules, ordinal, lane))


def recover(rules: Rules, ordinal: int, owner: str) -> Program:
    """Fence the owner, then read the marker. True where nothing is out and the batch is free again."""
    receipt = yield from outcome(rules, ordinal, owner)
    if receipt is not None:
        yield from settle(rules, ordinal, owner, receipt)
        return False
    match = None if rules.flaw is Flaw.BLIND_CLEAR else owner
    freed = yield from move(rules, Move(ordinal, (SENDING,), QUEUED, owner=match, clear=True))
    return freed is not None


def outcome(rules: Rules, ordinal: int, owner: str) -> Program:
    """The receipt that the batch went out with, or None for nothing, for ever."""
    if rules.flaw not in (Flaw.NO_FENCE, Flaw.MARKER_BEFORE_FENCE):
        yield Fence(owner)
    marker = yield ReadMarker(ordinal % rules.slots)
    while marker == SILENCE and rules.flaw is not Flaw.ERROR_IS_NO_MARKER:
        marker = yield ReadMarker(ordinal % rules.slots)
    if rules.flaw is Flaw.MARKER_BEFORE_FENCE:
        yield Fence(owner)
    return marker[1] if marker not in (None, SILENCE) and marker[0] == ordinal else None


def recover_own(rules: Rules, ordinal: int, lane: str) -> Program:
    """After a lost lane: recover the batch unless another has it by now. True where the message is worth keeping."""
    batch = yield Read(ordinal)
    if batch.owner != lane:
        return False
    return (yield from recover(rules, ordinal, lane))


def gate(rules: Rules, ordinal: int, turn: int | None, attempts: int) -> Program:
    """Whether the batch may leave now; if not, it is put where it belongs."""
    status = yield ReadJob()
    if status in RESUMABLE:
        yield from move(rules, Move(ordinal, (QUEUED,), PLANNED, turn=turn))
        look_again = chain_of if rules.flaw is Flaw.SUCCESSOR_OF_PARKED else feed_chain
        yield from look_again(rules, ordinal)
        return False
    if status is JobStatus.STOPPED:
        yield from move(rules, Move(ordinal, (QUEUED,), BatchStatus.DROPPED, turn=turn))
        return False
    if rules.attempts and attempts >= rules.attempts:
        yield from move(rules, Move(ordinal, (QUEUED,), BatchStatus.FAILED, turn=turn))
        yield from chain_of(rules, ordinal)
        return False
    return True


def produce(rules: Rules, ordinal: int, lane: str) -> Program:
    """Records and marker in one transaction. True where the lane was lost: the batch stays owned."""
    apart = rules.flaw is Flaw.MARKER_OUTSIDE
    if rules.flaw is Flaw.LATE_START:
        yield Start()
    reply = yield Append(Piece(ordinal, lane, marker=not apart))
    if reply == REFUSED:
        return (yield from roll_back(rules, ordinal, lane))
    if reply == OK:
        reply = yield Commit()
    if reply == OK and apart:
        yield Append(Piece(ordinal, lane, records=False))
        reply = yield Commit()
    if reply == OK or (reply == SILENCE and rules.flaw is Flaw.BELIEVED_COMMIT):
        yield from settle(rules, ordinal, lane, lane)
        return False
    if reply == SILENCE and rules.flaw is Flaw.BELIEVED_ABORT:
        yield from put_back(rules, ordinal, lane)
        return False
    return True


def settle(rules: Rules, ordinal: int, owner: str, receipt: str) -> Program:
    """The records are out: say so, and feed the chain."""
    yield from move(rules, Move(ordinal, (SENDING,), BatchStatus.SENT, owner=owner, receipt=receipt))
    yield from chain_of(rules, ordinal)


def roll_back(rules: Rules, ordinal: int, lane: str) -> Program:
    """After a refused record; the batch is put back only where the abort is confirmed."""
    reply = yield Abort()
    if reply != OK:
        return True
    yield from put_back(rules, ordinal, lane)
    return False


def put_back(rules: Rules, ordinal: int, lane: str) -> Program:
    """The owner lets go of the batch and publishes its next turn."""
    match = None if rules.flaw is Flaw.BLIND_RELEASE else lane
    freed = yield from move(rules, Move(ordinal, (SENDING,), QUEUED, owner=match, clear=True, raises=True))
    if freed is not None:
        yield Publish(Message("send", ordinal, freed.turn))


def move(rules: Rules, wanted: Move) -> Program:
    """Compare and set; without a reply, reading again decides. The new batch, or None."""
    reply = yield wanted
    if reply != SILENCE:
        return reply
    if wanted.take and rules.flaw is Flaw.BELIEVED_TAKE:
        return Entry(0, 0)
    batch = yield Read(wanted.ordinal)
    return batch if wanted.landed(batch) else None


def chain_of(rules: Rules, ordinal: int) -> Program:
    """Queue the successor of a batch that may be settled; where there is none, look whether the job is done."""
    batch = yield Read(ordinal)
    if not batch.settled and rules.flaw is not Flaw.SUCCESSOR_OF_PARKED:
        return
    status = yield ReadJob()
    if status is not JobStatus.RUNNING:
        return
    successor = yield Read(ordinal + rules.slots)
    if successor is None:
        yield from finish()
    elif successor.status is PLANNED:
        yield from publish_next_turn(rules, ordinal + rules.slots, successor)


def feed_chain(rules: Rules, ordinal: int) -> Program:
    """The chain that the batch stands in."""
    yield from feed(rules, ordinal % rules.slots)


def feed(rules: Rules, slot: int) -> Program:
    """Put the chain's lowest unsettled batch on the broker if it is planned; without one, look whether the job is done."""
    status = yield ReadJob()
    if status is not JobStatus.RUNNING:
        return
    found = yield from lowest(rules, slot)
    if found is None:
        yield from finish()
    elif found[1].status is PLANNED:
        yield from publish_next_turn(rules, found[0], found[1])


def lowest(rules: Rules, slot: int) -> Program:
    """(ordinal, batch) of the batch that the chain waits for, or None."""
    if rules.flaw is Flaw.GREEDY_FEED:
        return (yield Lowest(slot, (PLANNED,)))
    if rules.flaw is not Flaw.SCAN_BY_STATUS:
        return (yield Lowest(slot))
    found = None
    for status in UNSETTLED:
        seen = yield Lowest(slot, (status,))
        found = min(filter(None, (found, seen)), default=None)
    return found


def publish_next_turn(rules: Rules, ordinal: int, batch: Entry) -> Program:
    """Raise the turn by compare-and-set, then publish it; a planned batch becomes queued."""
    target = SENDING if batch.status is SENDING else QUEUED
    moved = yield from move(rules, Move(ordinal, (batch.status,), target, turn=batch.turn, raises=True))  # type: ignore[arg-type]
    if moved is not None:
        yield Publish(Message("send", ordinal, batch.turn + 1))


def finish() -> Program:
    """Complete a job that has nothing left."""
    done = yield Done()
    if done:
        yield MoveJob((JobStatus.RUNNING,), JobStatus.COMPLETED, close=True)


def planner(rules: Rules) -> Program:
    """Cut the audience page by page from wherever the plan stands, and feed what was cut."""
    yield Deliver("plan")
    last = yield ReadLast()
    while last[1].status is not None:
        status = yield ReadJob()
        if status is JobStatus.STOPPED:
            break
        page = yield Cut(last[1].upto)
        overtaken = yield from insert(rules, last[0] + 1, page)
        yield from feed_all(rules)
        last = (last[0] + len(page), page[-1])
        if overtaken:
            last = yield ReadLast()
    yield from feed_all(rules)
    yield Ack()


def insert(rules: Rules, first: int, page: tuple[Entry, ...]) -> Program:
    """Insert in order, up to the first ordinal that is taken. True where another planner was faster."""
    overtaken = False
    for offset in range(len(page)):
        reply = yield Insert(first + offset, page[offset])
        overtaken = overtaken or reply is not True
        if overtaken and rules.flaw is not Flaw.STUBBORN_PLANNER:
            break
    return overtaken


def feed_all(rules: Rules) -> Program:
    """Every chain."""
    for slot in range(rules.slots):
        yield from feed(rules, slot)


def upkeep(rules: Rules) -> Program:
    """One thing that may have been lost: look again, and see to it."""
    chore, target = yield Chore()
    match chore:
        case "plan":
            yield Publish(Message("plan"))
        case "renew":
            batch = yield Read(target)
            if batch.status is QUEUED or (batch.status is SENDING and not rules.patient):
                yield from publish_next_turn(rules, target, batch)
        case "feed":
            yield from feed(rules, target)
        case "drop":
            owned = (SENDING,) if rules.flaw is Flaw.DROPPED_OWNED else ()
            yield from move(rules, Move(target, (PLANNED, QUEUED, *owned), BatchStatus.DROPPED))
        case "close":
            yield from close(rules)


def close(rules: Rules) -> Program:
    """Close a stopped job: end its plan first, so that no planner that is still at it adds a batch afterwards."""
    last = yield ReadLast()
    while last[1].status is not None and rules.flaw is not Flaw.UNENDED_STOP:
        yield Insert(last[0] + 1, Entry(last[1].upto, last[1].upto, None))
        last = yield ReadLast()
    done = yield Done()
    if done:
        yield MoveJob((JobStatus.STOPPED,), JobStatus.STOPPED, close=True)


def user(rules: Rules) -> Program:
    """Pause, resume or stop; resuming feeds."""
    wanted = yield Click()
    match wanted:
        case JobStatus.PAUSED:
            yield MoveJob(tuple(sorted(PAUSABLE)), JobStatus.PAUSED)
        case JobStatus.RUNNING:
            yield MoveJob(tuple(sorted(RESUMABLE)), JobStatus.RUNNING)
            yield from feed_all(rules)
        case JobStatus.STOPPED:
            yield MoveJob(tuple(sorted(sources(JobStatus.STOPPED))), JobStatus.STOPPED)


PROGRAMS = {"worker": worker, "planner": planner, "upkeep": upkeep, "user": user}
