"""What a worker does with a batch: recover, gate, take, produce, settle, feed."""

from shared.domain.batches import BatchStatus
from shared.domain.jobs import RESUMABLE, JobStatus
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
from tests.domain.protocol.world import Flaw, Message, Move, Piece, Rules


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
