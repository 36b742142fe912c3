"""Moves and what follows from them: chains are fed, and somebody notices that the job is done."""

from collections.abc import Generator
from typing import Any, NamedTuple

from shared.domain.jobs.batches import BatchStatus
from shared.domain.jobs.jobs import JobStatus
from tests.domain.protocol.operations import SILENCE, UNSETTLED, Done, Lowest, Publish, Read, ReadJob
from tests.domain.protocol.world import Entry, Flaw, Message, Move, MoveJob, Rules

PLANNED, QUEUED, SENDING = BatchStatus.PLANNED, BatchStatus.QUEUED, BatchStatus.SENDING

Program = Generator[NamedTuple, Any, Any]


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
    """Queue the chain's lowest unsettled batch if it is planned; without one, look whether the job is done."""
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


def feed_all(rules: Rules) -> Program:
    """Every chain."""
    for slot in range(rules.slots):
        yield from feed(rules, slot)
