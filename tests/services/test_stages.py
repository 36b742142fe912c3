"""Each queue of a worker has one stage, and no callback of a user can reach it."""

from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from services.wiring.workers import build_stages, queues_of
from shared.core.tasks import TASK_PREFIXES
from shared.runtime.configuration import load


async def test_each_queue_has_a_stage_of_its_own_that_callbacks_cannot_name() -> None:
    rooms = Rooms(Servers(load({"CARILLON_BROKER_URL": "memory://"}), service="test"))
    queues = queues_of(build_stages(rooms))
    assert len(set(queues)) == len(queues)
    assert rooms.jobs.kinds.queues <= set(queues)
    assert all(queue.startswith(TASK_PREFIXES) for queue in queues)
    await rooms.servers.close()
