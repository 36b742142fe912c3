"""`/queues/{queue}/dead`: tasks that nobody could read, or that failed by a fault of ours, in `<queue>.dlq`.

A task only says where to look, so one that comes back twice, or late, does no harm.
"""

from functools import partial
from http import HTTPStatus
from typing import Any

from litestar import Request, Response
from litestar.params import FromPath
from msgspec import Struct

from services.api.http import paging, wire
from services.api.http.rights import ADMIN
from services.api.http.routes import Parameter, Resource, Route
from shared.broker import DEAD_LETTERS, Broker
from shared.domain.errors import NotFound
from shared.domain.tasks import TASK_PREFIXES

DEAD = "/queues/{queue:str}/dead"
SHOWN = 100
SHOWN_BYTES = 4_096
RETURNED = 500

_LIMIT = Parameter(
    name="limit",
    description="How many are shown at most, the first ones.",
    schema={"type": "integer", "minimum": 1, "maximum": SHOWN, "default": SHOWN},
)
_QUEUE = {"type": "string", "description": "The name of the queue."}
_route = partial(Route, who=ADMIN, segments={"queue": _QUEUE}, problems=(HTTPStatus.NOT_FOUND,))


class DeadTaskView(Struct, frozen=True):
    """A message: its text, as far as it is shown, and its bytes."""

    text: str
    bytes: int


class DeadTasksView(Struct, frozen=True):
    """How many dead messages a queue has, and the first of them."""

    queue: str
    dead: int
    messages: list[DeadTaskView]


class ReturnedView(Struct, frozen=True):
    """How many went back into the queue, and how many are left."""

    returned: int
    left: int


class PurgedView(Struct, frozen=True):
    """How many there were."""

    purged: int


class DeadTasksResource(Resource):
    """The routes of dead tasks."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @_route(
        "GET", DEAD, summary="Show the first dead messages of a queue, which stay where they are.",
        answers={HTTPStatus.OK: DeadTasksView}, parameters=(_LIMIT,),
    )  # fmt: skip
    async def peek_dead_tasks(self, request: Request[Any, Any, Any], queue: FromPath[str]) -> Response[bytes]:
        dead, rule = _dead_letters_of(queue), f"limit must be an integer from 1 to {SHOWN}"
        limit = paging.read_integer(request, _LIMIT.name, most=SHOWN, default=SHOWN, rule=rule)
        count = await self._broker.depth(dead)
        bodies = await self._broker.peek(dead, limit)
        messages = [DeadTaskView(body[:SHOWN_BYTES].decode(errors="replace"), len(body)) for body in bodies]
        return wire.answer(DeadTasksView(queue, max(count, len(messages)), messages))

    @_route(
        "POST", DEAD + "/return",
        summary=f"Put the first {RETURNED} dead messages of a queue back into it, to be tried again.",
        act="queue.return", answers={HTTPStatus.OK: ReturnedView},
    )  # fmt: skip
    async def return_dead_tasks(self, queue: FromPath[str]) -> Response[bytes]:
        dead = _dead_letters_of(queue)
        returned = await self._broker.move(dead, queue, RETURNED)
        return wire.answer(ReturnedView(returned, await self._broker.depth(dead)))

    @_route(
        "POST", DEAD + "/purge", summary="Drop the dead messages of a queue for good.",
        act="queue.purge", answers={HTTPStatus.OK: PurgedView},
    )  # fmt: skip
    async def purge_dead_tasks(self, queue: FromPath[str]) -> Response[bytes]:
        dead = _dead_letters_of(queue)
        count = await self._broker.depth(dead)
        await self._broker.purge(dead)
        return wire.answer(PurgedView(count))


def _dead_letters_of(queue: str) -> str:
    """The queue of this one's dead letters. Raises `NotFound` for a queue that is none of ours."""
    if not queue.startswith(TASK_PREFIXES) or queue.endswith(DEAD_LETTERS):
        raise NotFound("there is no queue of tasks with this name", field="queue", value=queue)
    return queue + DEAD_LETTERS
