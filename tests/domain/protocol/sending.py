"""What a worker does with a batch: recover, gate, take, produce, settle, feed."""

from shared.domain.jobs.batches import BatchStatus
from shared.domain.jobs.jobs import RESUMABLE, JobStatus
from tests.domain.protocol.feeding import PLANNED, QUEUED, SENDING, Program, chain_of, feed_chain, move
from tests.domain.protocol.operations import (
    OK,
    REFUSED,
    SILENCE,
    Abort,
    Ack,
    Append,
    Commit,
    Deliver,
    Fence,
    Publish,
    Read,
    ReadJob,
    ReadMarker,
    Requeue,
    Start,
)
from tests.domain.protocol.world import Entry, Flaw, Message, Move, Piece, Rules


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
        batch = yield from recover(rules, ordinal, batch)
    lost = False
    while batch is not None and not lost:
        lost, batch = yield from send_part(rules, ordinal, turn, lane, batch)
    return lost


def send_part(rules: Rules, ordinal: int, turn: int, lane: str, batch: Entry) -> Program:
    """Whether the batch, or the lane, was lost to somebody; and the batch where another part is to be sent."""
    wanted = None if rules.flaw is Flaw.IGNORED_TURN else turn
    passed = yield from gate(rules, ordinal, wanted, batch.attempts)
    if not passed:
        return False, None
    seen = None if rules.flaw is Flaw.STALE_PART else batch.attempts
    taken = yield from move(rules, Move(ordinal, (QUEUED,), SENDING, turn=wanted, attempts=seen, take=lane))
    if taken is None:
        return True, None
    # What is sent was read before the take.
    return (yield from produce(rules, ordinal, lane, taken._replace(parts=batch.parts)))


def recover(rules: Rules, ordinal: int, batch: Entry) -> Program:
    """Fence the owner, then read the marker. The batch where it is free again, and something is left to be sent."""
    receipt = yield from outcome(rules, ordinal, batch)
    if receipt is not None:
        return (yield from go_on(rules, ordinal, batch, receipt))
    match = None if rules.flaw is Flaw.BLIND_CLEAR else batch.owner
    take = take_of(rules, batch, match)
    return (yield from move(rules, Move(ordinal, (SENDING,), QUEUED, owner=match, attempts=take, clear=True)))


def take_of(rules: Rules, batch: Entry, owner: str | None) -> int | None:
    """What a move of an owned batch matches beside its lane: a lane may take one part after the other."""
    return None if owner is None or rules.flaw in (Flaw.ANY_TAKE, Flaw.REUSED_LANE) else batch.attempts


def outcome(rules: Rules, ordinal: int, batch: Entry) -> Program:
    """The receipt that the part behind those that are known went out with, or None for nothing, for ever."""
    owner = batch.owner
    if rules.flaw not in (Flaw.NO_FENCE, Flaw.MARKER_BEFORE_FENCE):
        yield Fence(owner)
    marker = yield ReadMarker(ordinal % rules.slots)
    while marker == SILENCE and rules.flaw is not Flaw.ERROR_IS_NO_MARKER:
        marker = yield ReadMarker(ordinal % rules.slots)
    if rules.flaw is Flaw.MARKER_BEFORE_FENCE:
        yield Fence(owner)
    if marker in (None, SILENCE) or marker[0] != ordinal or marker[2] != owner:
        return None
    return marker[2] if marker[1] == batch.parts or rules.flaw is Flaw.ANY_PART else None


def recover_own(rules: Rules, ordinal: int, lane: str) -> Program:
    """After a lost lane: recover the batch unless another has it by now. True where the message is worth keeping."""
    batch = yield Read(ordinal)
    if batch.owner != lane or batch.settled:
        return False
    freed = yield from recover(rules, ordinal, batch)
    return freed is not None


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


def produce(rules: Rules, ordinal: int, lane: str, batch: Entry) -> Program:
    """Records and marker of a part in one transaction. Whether the lane was lost: the batch stays owned; and the batch
    where another part is to be sent."""
    apart = rules.flaw is Flaw.MARKER_OUTSIDE
    if rules.flaw is Flaw.LATE_START:
        yield Start()
    reply = yield Append(Piece(ordinal, lane, batch.parts, marker=not apart))
    if reply == REFUSED:
        lost = yield from roll_back(rules, ordinal, batch)
        return lost, None
    if reply == OK:
        reply = yield Commit()
    if reply == OK and apart:
        yield Append(Piece(ordinal, lane, batch.parts, records=False))
        reply = yield Commit()
    if reply == OK or (reply == SILENCE and rules.flaw is Flaw.BELIEVED_COMMIT):
        standing = yield from go_on(rules, ordinal, batch, lane)
        return False, standing
    if reply == SILENCE and rules.flaw is Flaw.BELIEVED_ABORT:
        yield from put_back(rules, ordinal, batch)
        return False, None
    return True, None


def go_on(rules: Rules, ordinal: int, batch: Entry, receipt: str) -> Program:
    """A part is out. Behind the last one, say so and feed the chain; else the batch, free for its next part."""
    owner, take = batch.owner, take_of(rules, batch, batch.owner)
    if batch.parts + 1 < rules.parts:
        advance = Move(ordinal, (SENDING,), QUEUED, owner=owner, attempts=take, clear=True, parts=batch.parts + 1)
        return (yield from move(rules, advance))
    settle = Move(ordinal, (SENDING,), BatchStatus.SENT, owner=owner, attempts=take, receipt=receipt)
    yield from move(rules, settle)
    yield from chain_of(rules, ordinal)
    return None


def roll_back(rules: Rules, ordinal: int, batch: Entry) -> Program:
    """After a refused record; the batch is put back only where the abort is confirmed."""
    reply = yield Abort()
    if reply != OK:
        return True
    yield from put_back(rules, ordinal, batch)
    return False


def put_back(rules: Rules, ordinal: int, batch: Entry) -> Program:
    """The owner lets go of the batch and publishes its next turn."""
    match = None if rules.flaw is Flaw.BLIND_RELEASE else batch.owner
    take = take_of(rules, batch, match)
    freed = yield from move(
        rules, Move(ordinal, (SENDING,), QUEUED, owner=match, attempts=take, clear=True, raises=True)
    )
    if freed is not None:
        yield Publish(Message("send", ordinal, freed.turn))
