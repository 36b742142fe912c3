"""The messages that workers take from RabbitMQ: small, versioned, each with a queue of its own.

A task names what to look at, never what to do about it: the documents decide. So a lost, late, doubled or forged task
can delay work but cannot make it wrong. A task that cannot be read is `Poisoned` and goes to `<queue>.dlq`.

The tasks of a push job say how often the clock has brought them back: `attempt` counts all their returns and makes the
pauses grow, `faults` those after a fault of ours, which are not for ever. A task without them is at its first try.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from shared.domain.errors import Poisoned

Count = Annotated[int, Meta(ge=0, lt=2**31)]


class PlanJob(Struct, frozen=True, tag_field="type", tag="plan"):
    """Cut the job's audience into batches, from wherever the plan stands."""

    job_id: str
    version: Literal[1] = 1
    attempt: Count = 0
    faults: Count = 0


class SendBatch(Struct, frozen=True, tag_field="type", tag="send"):
    """Bring one batch to its end, if it still has this turn."""

    job_id: str
    ordinal: int
    turn: int
    version: Literal[1] = 1
    attempt: Count = 0
    faults: Count = 0


class FinishJob(Struct, frozen=True, tag_field="type", tag="finish"):
    """Sum up and close a job whose batches are all settled."""

    job_id: str
    version: Literal[1] = 1
    attempt: Count = 0
    faults: Count = 0


class SendMail(Struct, frozen=True, tag_field="type", tag="mail"):
    """Send the mail of this kind about what happened to the job at this time (ns), if it is still due."""

    job_id: str
    kind: str
    at: int
    version: Literal[1] = 1
    attempt: Count = 0
    faults: Count = 0


class CallTarget(Struct, frozen=True, tag_field="type", tag="call"):
    """Make the HTTP call of an occurrence, if it still has this token.

    Whose it is and where it goes decide when its turn comes. A task without them is nobody's: it shares with its like.
    """

    occurrence_id: str
    token: str
    version: Literal[1] = 1
    namespace: str = ""
    host: str = ""


JobTask = PlanJob | SendBatch | FinishJob | SendMail
Task = JobTask | CallTarget

SPLIT_QUEUE = "push.split"
BATCH_QUEUE = "push.batch"
FINISH_QUEUE = "push.finish"
MAIL_QUEUE = "push.mail"
CALL_QUEUE = "sched.call"
QUEUES = (SPLIT_QUEUE, BATCH_QUEUE, FINISH_QUEUE, MAIL_QUEUE, CALL_QUEUE)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Task] = msgspec.json.Decoder(Task)


def queue_of(task: Task) -> str:
    """The queue that carries this kind of task."""
    match task:
        case PlanJob():
            return SPLIT_QUEUE
        case SendBatch():
            return BATCH_QUEUE
        case FinishJob():
            return FINISH_QUEUE
        case SendMail():
            return MAIL_QUEUE
        case CallTarget():
            return CALL_QUEUE


def next_try(task: Task, *, fault: bool) -> Task:
    """The task as it comes back after it could not be done. A call's tries are counted in its occurrence."""
    if isinstance(task, CallTarget):
        return task
    return replace(task, attempt=task.attempt + 1, faults=task.faults + fault)


def encode(task: Task) -> bytes:
    """The task as JSON."""
    return _encoder.encode(task)


def decode(body: bytes) -> Task:
    """The task that `encode` wrote.

    Raises:
        Poisoned: the bytes are not a task of a version that this process knows.
    """
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Poisoned(f"not a task: {error}") from error
