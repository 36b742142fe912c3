"""Fault points: the named lines at which a crash matters.

A point does nothing unless the process was started with it armed. `CARILLON_FAULT` arms points, separated by commas:

    send.before_take=kill                SIGKILL to this process
    send.after_commit=stop               SIGSTOP to this process, until it is continued
    api.after_job_insert=delay:2.5       waits 2.5 seconds
    stream.marker_read=raise             raises `FaultInjected`, which drivers translate like any lost connection
    stream.commit_reply=hang             waits for ever (until cancelled)
    send.after_take@3=kill               the third time that the point is reached; without @ the first time

Each fires once. Before that, it writes its point's name to stderr and, if `CARILLON_FAULT_FILE` names a file, appends
it there and flushes it to the disk, so that a test can wait for the line. `POINTS` lists all points.
"""

import asyncio
import os
import signal
import sys
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

POINTS: dict[str, str] = {
    "send.before_take": "A worker that has read and rendered a batch that no worker owns yet.",
    "send.after_take": "A worker that owns a batch and has sent nothing of it.",
    "send.in_transaction": "A worker whose records are on Kafka in an open transaction.",
    "send.after_commit": "A worker whose batch is out but not settled.",
    "send.after_settle": "A worker that has settled its batch and has not fed the chain's next one.",
    "send.before_feed": "A worker about to feed the next batch of a chain.",
    "send.before_ack": "A worker that has done everything except to acknowledge its message.",
    "feed.after_queue": "A process that has queued a batch in the store and not published its message.",
    "plan.after_page": "A planner that has stored one page of batches and not fed them.",
    "plan.before_end": "A planner that has cut the whole audience and not written the plan's end.",
    "divide.after_lists": "A planner that has stored a division's lists and not the step that makes them count.",
    "divide.after_step": "A planner that has stored one step of a division, and none of the next.",
    "finish.after_totals": "A worker that has summed up a job and not written its control group's file.",
    "finish.after_file": "A worker that has written the file of a job's control group and not closed the job.",
    "breaker.before_look": "A worker that has settled a failed batch and not looked whether its job must be held.",
    "mail.after_send": "A worker whose mail was taken and is still due.",
    "api.after_job_insert": "An API process that has stored a job and not queued its task.",
    "api.after_group_insert": "An API process that has stored a group and none of its jobs.",
    "group.after_jobs": "A process that has stored the jobs of a group and not their starts.",
    "group.before_made": "A process that has stored all of a group and not noted that.",
    "schedule.after_insert": "An API process that has stored a schedule with all of its occurrences, and not answered.",
    "schedule.after_occurrences": "A process that has stored occurrences, which do not count without their schedule.",
    "schedule.after_replace": "A process that has replaced a schedule and not removed what belonged to the old one.",
    "schedule.after_amend": "A process that has moved the anchor of a schedule and not its occurrences.",
    "schedule.after_backfill": "An API process that has noted a backfill and stored no occurrence.",
    "schedule.after_pause": "An API process that has paused a schedule and not held back its occurrences.",
    "schedule.after_resume": "An API process that has resumed a schedule and not let go its occurrences.",
    "schedule.after_remove": "An API process that has removed a schedule and not its occurrences.",
    "revocation.after_note": "An API process that has noted a revocation and not removed the token or user.",
    "revocation.after_removal": "A process that has removed a token or user and paused none of their schedules.",
    "revocation.after_page": "A process that has paused one page of the schedules of a revoked caller.",
    "upload.after_part": "An API process that has stored a part of a file and not noted it.",
    "upload.after_join": "An API process that has joined the parts of a file and not noted that.",
    "audit.before_system_records": "A scheduler that has found what the audit is to be told, and told nothing.",
    "audit.after_system_records": "A scheduler that has told the audit, and not noted that it has.",
    "feed.after_place": "A process that has taken a place of a credential for a batch and not queued it.",
    "message.after_disown": "A worker that has found a batch of a dead one and not taken it.",
    "single.after_insert": "An API process that has stored a single message and told no worker of it.",
    "single.after_take": "A worker that has taken the lease of a credential's single messages, and sent none.",
    "message.after_take": "A worker that owns a batch of messages and has looked at nothing of it.",
    "message.after_grant": "A worker that was granted instants and has noted no message for them.",
    "message.before_bytes": "A worker whose message is noted as `sending` and about to be called.",
    "message.before_record": "A worker that has answers of its provider and is about to record them.",
    "message.before_settle": "A worker that has sent all that can be sent of a batch now, and not settled it.",
    "retry.after_job": "A process that has let an ended job run again and put none of its batches back into its plan.",
    "retry.after_batches": "A process that has put the batches of such a job back and not noted that.",
    "halt.before_move": "A process that has seen too many bounces of a job and not held it.",
    "message.after_write_ahead": "A worker that has noted messages as `sending` and called no provider.",
    "message.after_call": "A worker whose provider has a message that is not recorded as sent.",
    "message.after_record": "A worker that has recorded answers and not settled its batch.",
    "callback.after_fold": "An API process that has stored what a provider told of messages, and not answered.",
    "bulk.after_insert": "An API process that has stored a bulk action and not told workers.",
    "bulk.after_page": "A worker that has acted on a page of a bulk action and not counted it.",
    "clock.after_claim": "A scheduler that has claimed a slice and read nothing of it.",
    "clock.after_look": "A scheduler that has seen which of its instants count and has not looked at its leases again.",
    "clock.before_publish": "A scheduler that is about to hand out what is due.",
    "clock.after_publish": "A scheduler whose messages are confirmed and whose occurrences are still there.",
    "clock.after_copy": "A scheduler that has copied a refused instant of a series and not moved the series on.",
    "clock.after_move": "A scheduler that has moved a series on.",
    "clock.after_hand_over": "A scheduler that has handed calls over and not queued their tasks.",
    "call.before_call": "A worker that has taken a call and not made it.",
    "call.after_call": "A worker whose call was answered and whose occurrence is still there.",
    "start.after_note": "A worker that has noted the job of an occurrence in its schedule and not stored the job.",
    "start.before_confirm": "A worker that has stored the job of an occurrence and not looked at its app again.",
    "redact.after_step": "A scheduler that has redacted some messages of a job and not noted that.",
    "forget.after_begin": "A scheduler that has noted that a job's messages go, and removed none.",
    "forget.after_fold": "A scheduler that has removed some batches of a job with their messages, and not the others.",
    "forget.before_end": "A scheduler that has removed all messages of a job and not noted that.",
    "deletion.after_begin": "A process that has noted that a job is deleted, and removed nothing of it.",
    "deletion.after_batches": "A process that has removed the batches of a job that is deleted, and not its group.",
    "deletion.before_end": "A process that has removed all that belongs to a job that is deleted, and not the job.",
    "deletion.after_step": "A process that has done one step of deleting jobs.",
    "removal.after_secrets": "A process that has removed what may send for a deleted app, and nothing else of it.",
    "removal.after_step": "A process that has removed some of what belongs to an app that is deleted.",
    "removal.before_end": "A process that has removed all that belongs to an app, and not the app.",
    "stream.commit_reply": "A lane whose commit was sent and whose reply does not come.",
    "stream.marker_read": "The read of a slot's marker during recovery.",
    "stream.produce_one": "One produce among those of a batch.",
    "feedback.before_flush": "A feedback consumer with counts in memory that are not stored.",
    "feedback.after_flush": "A feedback consumer that has stored its counts and not moved on.",
    "bus.after_append": "An API process that has appended events to the log of the bus, and not answered.",
    "bus.after_suspend": "A worker that has suspended a subscription and told no one.",
    "bus.after_retry": "A process that has opened the delivery of a dead letter again, and not woken its queue.",
    "bus.after_resume": "A process that has resumed a subscription and neither woken its queue nor begun its replay.",
    "bus.after_remove": "A process that has removed a subscription and nothing of what waits for it.",
    "outbox.after_publish": "A fan-out that has published events of the outbox and not removed them.",
    "notices.after_publish": "A fan-out that has published a notice of the bus, which is still to be told.",
    "fanout.before_flush": "A fan-out with folded events in memory that are not stored.",
    "fanout.after_flush": "A fan-out that has stored what it read and woken no queue.",
    "fanout.after_wake": "A fan-out that has woken whom its flush concerns and not noted that.",
    "replay.after_insert": "An API process that has stored a replay and not told workers.",
    "replay.after_take": "A worker that has taken a replay and read nothing.",
    "replay.before_flush": "A worker with events of a replay in memory that are not stored.",
    "replay.after_flush": "A worker that has stored events of a replay and not woken their queue.",
    "deliver.after_take": "A worker that has taken wake-ups and looked at none of their queues.",
    "deliver.after_cut": "A worker that has cut deliveries and called no receiver.",
    "deliver.before_call": "A worker that is about to call a receiver, and has noted that it will.",
    "deliver.after_call": "A worker whose receiver has answered and whose delivery is still open.",
    "deliver.after_settle": "A worker that has settled deliveries and still has their wake-ups.",
}


class FaultInjected(ConnectionError):
    """A lost connection, as a driver would report it."""


class Action(StrEnum):
    KILL = "kill"
    STOP = "stop"
    DELAY = "delay"
    RAISE = "raise"
    HANG = "hang"


class Fault(Struct, frozen=True):
    """One armed fault: at the `nth` time that `point` is reached, do `action`. `seconds` belongs to `delay`."""

    point: str
    action: Action
    nth: int = 1
    seconds: float = 0.0


class _Trap:
    def __init__(self) -> None:
        self.reached = 0
        self.faults: dict[int, Fault] = {}

    async def reach(self) -> None:
        self.reached += 1
        armed = self.faults.pop(self.reached, None)
        if armed is not None:
            if not _quiet:
                _announce(armed.point)
            await _fire(armed)


_quiet = False

# Every known point is a key, so one lookup finds the trap and refuses an unknown name.
_traps: dict[str, _Trap | None] = dict.fromkeys(POINTS)


async def fault(point: str) -> None:
    """Do what `point` is armed with, or nothing. Raises `LookupError` for a point that `POINTS` does not list."""
    try:
        trap = _traps[point]
    except KeyError:
        raise LookupError(f"unknown fault point {point!r}: list it in POINTS") from None
    if trap is not None:
        await trap.reach()


def arm(spec: str, *, quietly: bool = False) -> None:
    """Replace all faults by `spec`, the text of `CARILLON_FAULT`; an empty text disarms. `quietly`: write nothing
    when a fault fires. Raises `ValueError`."""
    global _quiet
    faults, _quiet = parse(spec), quietly
    _traps.update(dict.fromkeys(POINTS))
    for armed in faults:
        trap = _traps[armed.point] or _Trap()
        trap.faults[armed.nth] = armed
        _traps[armed.point] = trap


def parse(spec: str) -> list[Fault]:
    """The faults in the text of `CARILLON_FAULT`. Raises `ValueError`, which names the entry."""
    return [_parse_one(entry.strip()) for entry in spec.split(",") if entry.strip()]


def _parse_one(entry: str) -> Fault:
    place, _, what = entry.partition("=")
    point, _, nth = place.partition("@")
    action, _, seconds = what.partition(":")
    if point not in POINTS:
        raise ValueError(f"CARILLON_FAULT: unknown point {point!r} in {entry!r}")
    try:
        parsed = Fault(point, Action(action), int(nth or 1), float(seconds or 0))
    except ValueError:
        raise ValueError(
            f"CARILLON_FAULT: cannot read {entry!r}; write point[@N]=kill|stop|delay:SECONDS|raise|hang"
        ) from None
    if parsed.nth < 1 or not 0 <= parsed.seconds < float("inf") or bool(seconds) != (parsed.action is Action.DELAY):
        raise ValueError(f"CARILLON_FAULT: {entry!r} needs N from 1, and seconds for delay only")
    return parsed


def _announce(point: str) -> None:
    sys.stderr.write(f"fault point {point} fires\n")
    sys.stderr.flush()
    if path := os.environ.get("CARILLON_FAULT_FILE"):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(file, f"{point}\n".encode())
        os.fsync(file)
        os.close(file)


async def _fire(armed: Fault) -> None:
    match armed.action:
        case Action.KILL:
            signal.raise_signal(signal.SIGKILL)
        case Action.STOP:
            # To this thread, not the process, so that no further line of this thread runs before the stop.
            signal.raise_signal(signal.SIGSTOP)
        case Action.DELAY:
            await asyncio.sleep(armed.seconds)
        case Action.RAISE:
            raise FaultInjected(f"fault point {armed.point}")
        case Action.HANG:
            while True:  # a timer keeps the task referenced; a bare future could be collected
                await asyncio.sleep(3600)
        case _:
            assert_never(armed.action)


arm(os.environ.get("CARILLON_FAULT", ""))
