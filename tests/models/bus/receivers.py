"""Receivers: they note each call, and answer, fail, hang, or answer late."""

import asyncio
from collections.abc import Callable
from random import Random

from msgspec import Struct

from shared.drivers.http import Answer, Call, PostedAnswer, Posting, Unreachable
from tests.models.simulated.steps import Gate

CALL_SECONDS = 6.0
_SLOW_SECONDS = (0.3, 1.5, 5.0)
_LATER_SECONDS = (None, None, 3.0)


class ReceiverCall(Struct):
    """One call: of which delivery, with what body, and when it was made. `status` is how it was answered, 0 for not at
    all, as far as the caller can know."""

    delivery: str
    sequence: int
    body: bytes
    at: float
    status: int = 0
    ended_at: float | None = None


class ReceiverCalls:
    """All calls so far. `strikes` tells which trouble comes."""

    def __init__(self, chance: Random, now: Callable[[], float], strikes: Callable[[str], bool]) -> None:
        self.calls: list[ReceiverCall] = []
        self.chance = chance
        self.now = now
        self.strikes = strikes

    def note(self, request: Call) -> ReceiverCall:
        """A call has come."""
        call = ReceiverCall(request.message_id, int(request.headers["carillon-sequence"]), request.body, self.now())
        self.calls.append(call)
        return call


class ModelOutgoing:
    """One process's way to receivers."""

    def __init__(self, gate: Gate, receivers: ReceiverCalls) -> None:
        self._gate = gate
        self._receivers = receivers

    async def call(self, request: Call) -> Answer:
        async def come() -> ReceiverCall | None:
            return None if self._receivers.strikes("away") else self._receivers.note(request)

        call: ReceiverCall | None = await self._gate.take("receiver.call", come, request.message_id, request.body)
        if call is None:
            raise Unreachable("connection refused")
        try:
            return await self._answer(call)
        finally:
            call.ended_at = self._receivers.now()

    async def post(self, posting: Posting) -> PostedAnswer:
        raise AssertionError("the bus posts nothing")

    async def close(self) -> None:
        """Nothing is open."""

    async def _answer(self, call: ReceiverCall) -> Answer:
        receivers = self._receivers
        if receivers.strikes("lost"):
            await asyncio.sleep(CALL_SECONDS)
            raise Unreachable("no answer in time")
        if receivers.strikes("slow"):
            await asyncio.sleep(receivers.chance.choice(_SLOW_SECONDS))
        call.status = 503 if receivers.strikes("refuses") else 200
        retry_after = receivers.chance.choice(_LATER_SECONDS) if call.status != 200 else None
        return Answer(call.status, retry_after, "")
