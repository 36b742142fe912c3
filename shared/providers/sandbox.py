"""The provider that sends nothing: it writes each message as a line of JSON, and answers as the address asks.

| the address has | the answer |
| --- | --- |
| `+bounce` | refused: a hard bounce |
| `+slow` | accepted, after two seconds |
| `+lost` | none: the message was written, and the answer is lost |
| anything else | accepted |

It exists if the deployment names a file: in embedded mode, or by a setting. A line is appended by one write, so
processes may share a file. A repetition is written like any other message and does no harm.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.core.errors import Invalid
from shared.drivers.http import Outgoing
from shared.messages.rules.answers import Answer, CallAccepted, CallRefused, CallUnanswered, Channel, NotNow, Reason
from shared.messages.rules.recipients import mask
from shared.providers import BeforeBytes, Content, NotCalled, Provider, ProviderKind, message_of
from shared.providers.base import read_fields
from shared.runtime.clock import Clock

SLOW_SECONDS = 2.0


class SandboxFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sandbox has no fields."""


class SandboxKind(ProviderKind):
    name = "sandbox"
    channel = Channel.OTHER

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        if not self._rules.sandbox_file:
            raise Invalid(
                "the sandbox exists in embedded mode, and where providers.sandbox_file names a file", field="kind"
            )
        read_fields(fields, SandboxFields)
        read_fields(secret, SandboxFields, "secret")

    def repeats_safely(self, fields: Mapping[str, Any]) -> bool:
        return True

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        return SandboxProvider(self._rules.sandbox_file, self._rules.call_seconds, self._clock)


class SandboxProvider:
    def __init__(self, path: str, call_seconds: float, clock: Clock) -> None:
        self._path = path
        self._call_seconds = call_seconds
        self._clock = clock

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            return NotNow(f"the sandbox cannot write its file: {error.strerror}")
        try:
            if not before_bytes():
                raise NotCalled("withheld")
            noted = {"at": self._clock.now(), "to": to, "key": key, "content": content}
            os.write(file, msgspec.json.encode(noted) + b"\n")
        except OSError as error:
            return CallUnanswered(f"the sandbox cannot write its file: {error.strerror}")
        finally:
            os.close(file)
        return await self._answer(to, key)

    async def close(self) -> None: ...

    async def _answer(self, to: str, key: str) -> Answer:
        if "+bounce" in to:
            return CallRefused(Reason.HARD_BOUNCE, f"{mask(to)} bounces, as it asks for")
        if "+lost" in to:
            return CallUnanswered("the answer is lost, as the address asks for")
        if "+slow" in to:
            await asyncio.sleep(min(SLOW_SECONDS, self._call_seconds))
            if self._call_seconds < SLOW_SECONDS:
                return CallUnanswered(f"no answer within {self._call_seconds:g} s")
        return CallAccepted(f"sandbox-{message_of(key)}")
