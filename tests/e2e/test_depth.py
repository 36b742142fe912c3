"""How deep the way of a push goes: from the message in a worker's hands to the call that hands records to Kafka."""

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from services.wiring.workers import build_stages
from services.worker.consumer import Consumer
from tests.e2e.house import House

pytestmark = [pytest.mark.e2e, pytest.mark.native]

CALLS = 8
ROOT = Path(__file__).parents[2]
OURS = (str(ROOT / "services"), str(ROOT / "shared"))


def calls_since(name: str, frame: FrameType | None) -> list[str]:
    """Our functions on the stack, from the one of this name down to the frame."""
    names: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(OURS):
            names.insert(0, frame.f_code.co_qualname)
            if frame.f_code.co_name == name:
                return names
        frame = frame.f_back
    return []


async def test_a_record_is_few_calls_from_its_message(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    send_batch, seen = AIOKafkaProducer.send_batch, []

    async def seen_batch(self: AIOKafkaProducer, *args: Any, **options: Any) -> Any:
        seen.append(calls_since("_answer", sys._getframe(1)))
        return await send_batch(self, *args, **options)

    monkeypatch.setattr(AIOKafkaProducer, "send_batch", seen_batch)
    await house.devices(10)
    stopping = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for stage in build_stages(house.rooms):
            group.create_task(Consumer(house.servers.broker, stage, name="test").run(stopping))
        await house.exactly_once(await house.post(), 10)
        stopping.set()
    print("\n".join(seen[0]))
    assert seen[0]
    assert max(map(len, seen)) <= CALLS
