"""What workers, planners, upkeep and users do, step by step, as the design tells it.

Each program is a generator: a `yield` is an await of the real code, so whatever others do can happen there, or the
process can die there. It yields an operation and is sent the reply. Nothing but the arguments and the replies decides
what it does.

Two rules for whoever changes a program: locals are hashable, and no value that matters may live only in an expression
around a `yield` (`automaton.py` tells states apart by position and locals).
"""

from shared.domain.jobs.batches import BatchStatus
from shared.domain.jobs.jobs import PAUSABLE, RESUMABLE, TRANSITIONS, JobStatus
from shared.domain.transitions import sources
from tests.domain.protocol.feeding import PLANNED, QUEUED, SENDING, Program, feed, feed_all, move, publish_next_turn
from tests.domain.protocol.operations import Ack, Chore, Click, Cut, Deliver, Done, Publish, Read, ReadJob, ReadLast
from tests.domain.protocol.sending import worker
from tests.domain.protocol.world import Entry, Flaw, Insert, Message, Move, MoveJob, Rules


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
        case _:
            raise ValueError(chore)


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
            yield MoveJob(tuple(sorted(sources(TRANSITIONS, JobStatus.STOPPED))), JobStatus.STOPPED)
        case _:
            raise ValueError(wanted)


PROGRAMS = {"worker": worker, "planner": planner, "upkeep": upkeep, "user": user}
