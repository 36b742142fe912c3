"""The queues of all tasks, and a broker that has them."""

from shared.bus.rules.wake_ups import DELIVER_QUEUE, REPLAY_QUEUE, SLOW_QUEUE
from shared.clock.rules.callbacks import CALL_QUEUE
from shared.console.rules.bulk_actions import BULK_QUEUE
from shared.drivers.rabbitmq.memory import MemoryBroker
from shared.jobs.rules.jobs import BATCH_QUEUE, FINISH_QUEUE, MAIL_QUEUE, SPLIT_QUEUE
from shared.messages.rules.singles import MESSAGE_QUEUE, SINGLE_QUEUE

QUEUES = (
    SPLIT_QUEUE,
    BATCH_QUEUE,
    FINISH_QUEUE,
    MAIL_QUEUE,
    CALL_QUEUE,
    BULK_QUEUE,
    MESSAGE_QUEUE,
    SINGLE_QUEUE,
    DELIVER_QUEUE,
    REPLAY_QUEUE,
    SLOW_QUEUE,
)


async def task_broker() -> MemoryBroker:
    """A broker in memory with all of them."""
    broker = MemoryBroker()
    await broker.setup(QUEUES)
    return broker
