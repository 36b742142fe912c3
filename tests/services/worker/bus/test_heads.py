"""Looking at the first chunks of many queues: a deep one holds up no other."""

import pytest

from services.worker.bus.grouped import FIRST_HEADS, HEADS, READS_AT_ONCE, HeadsAsked, read_heads
from tests.bus.store.made_chunks import add_chunks, ids, listening
from tests.services.worker.bus.delivering import Delivering

pytestmark = pytest.mark.native

DEEP, SMALL, OTHER = (f"{number:032x}.g" for number in range(3))


async def test_a_deep_queue_holds_up_no_other_whether_known_or_not(bus: Delivering, ready_database: str) -> None:
    deep, small, other = [await add_chunks(bus.store, *one) for one in ((DEEP, HEADS + 50), (SMALL, 3), (OTHER, 70))]
    async with listening(ready_database) as (cuts, finds):
        for waiting, calls in ((HEADS, 2), (1, 4)):
            asked = [HeadsAsked(DEEP, FIRST_HEADS, waiting), HeadsAsked(SMALL, 2, 3), HeadsAsked(OTHER, FIRST_HEADS, 0)]
            found = await read_heads(cuts, asked)
            assert [*map(ids, found)] == [deep[:FIRST_HEADS], small[:2], other[:FIRST_HEADS]]
            assert len(finds.sent) == calls
            finds.sent.clear()


async def test_lone_reads_run_at_the_same_time_and_not_all_of_them(bus: Delivering, ready_database: str) -> None:
    queues = [f"{number:032x}.g" for number in range(20)]
    for queue in queues:
        await add_chunks(bus.store, queue, 70)
    async with listening(ready_database) as (cuts, finds):
        found = await read_heads(cuts, [HeadsAsked(queue, FIRST_HEADS, 70) for queue in queues])
    assert [len(heads) for heads in found] == [FIRST_HEADS] * 20
    assert 2 <= finds.most_running <= READS_AT_ONCE
