"""The messages that workers take from RabbitMQ: small, versioned, each kind with a queue of its own.

A task names a thing to look at, never the work: the documents decide. So a lost, late, doubled or forged task can delay
work but cannot make it wrong. A task that cannot be read is `Poisoned`: workers drop it.

This is the common part of all tasks; each subject has its own (`shared.jobs.rules.jobs` and others).
"""

from functools import cache
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from shared.core.errors import Poisoned

TASK_PREFIXES = ("push.", "message.batch", "message.single", "sched.", "carillon.", "ops.bulk", "bus.")
"""The name of every queue of tasks begins with one of these. Callbacks cannot reach them, because they could forge
work."""

Count = Annotated[int, Meta(ge=0, lt=2**31)]

AnyTask = TypeVar("AnyTask", bound="Task")

_UNTOLD = frozenset({"version", "trace", "token"})
_encoder = msgspec.json.Encoder()


class Task(Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message of one kind, which `queue` carries. `trace` is that of the work's beginning
    (`shared.runtime.tracing`)."""

    queue: ClassVar[str]
    version: Literal[1] = 1
    trace: str = ""

    @property
    def about(self) -> str:
        """Its subject, for people: its own fields, as in `<job>/<batch>/<turn>`."""
        own = (field for field in self.__struct_fields__ if field not in RetriedTask.__struct_fields__)
        return "/".join(str(getattr(self, field)) for field in own)


class RetriedTask(Task, frozen=True, kw_only=True):
    """A task with its retries: `attempt` counts all its returns and makes the pauses grow, `faults` those after a fault
    of Carillon's, which are limited. A task without them is at its first try."""

    attempt: Count = 0
    faults: Count = 0


def next_try(task: AnyTask, *, fault: bool) -> AnyTask:
    """The task for its next try. A task that counts its tries elsewhere stays unchanged."""
    if not isinstance(task, RetriedTask):
        return task
    return replace(task, attempt=task.attempt + 1, faults=task.faults + fault)


def name_of(task: Task) -> str:
    return str(task.__struct_config__.tag)


def facts_of(task: Task) -> dict[str, str | int]:
    return {name: fact for name, fact in asdict(task).items() if name not in _UNTOLD and isinstance(fact, str | int)}


def encode(task: Task) -> bytes:
    return _encoder.encode(task)


def decode(body: bytes, kind: type[AnyTask]) -> AnyTask:
    try:
        task: AnyTask | _NoTask = _decoder(kind).decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Poisoned(f"not a task: {error}") from error
    if isinstance(task, _NoTask):
        raise Poisoned("not a task: it says so itself")
    return task


class _NoTask(Task, frozen=True, tag="none"):
    """The second kind of each decoder, because a decoder of one kind accepts a message without a kind."""

    queue: ClassVar[str] = ""


@cache
def _decoder(kind: type[AnyTask]) -> "msgspec.json.Decoder[AnyTask | _NoTask]":
    return msgspec.json.Decoder(kind | _NoTask)
