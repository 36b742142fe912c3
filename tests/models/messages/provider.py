"""The provider of the model: it notes each call with the time at which it began, answers as the weather says, and has
news to tell of what it took."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random
from typing import Any, cast

from msgspec import Struct

from shared.core.errors import Unavailable
from shared.drivers.http import Outgoing
from shared.messages.rules import answers
from shared.messages.rules.answers import Answer, Channel, Reason
from shared.messages.rules.ledger import MessageState
from shared.providers import BeforeBytes, Content, NotCalled, Provider, ProviderKind
from tests.models.simulated.simulation import Process

KIND = "model"
CALL_SECONDS = 4.0
_QUICK = (0.02, 0.1, 0.3)
_SLOW = (0.9, 2.0, 3.9)
_CONNECTING = (0.0, 0.0, 0.003, 0.05, 2.0, 3.8)
_LONGEST_MEMORY = 12

_BAD = (Reason.HARD_BOUNCE, Reason.SOFT_BOUNCE, Reason.UNDELIVERED, Reason.COMPLAINT)


class ProviderCall(Struct, frozen=True):
    """A call: of this message's attempt, by an account, when its bytes left (s), and what came of it."""

    message: str
    attempt: int
    account: str
    at: float
    given: Answer

    @property
    def certainly_not_taken(self) -> bool:
        """Whether the caller is told that another call does no harm."""
        return isinstance(self.given, answers.NotNow | answers.LoginRefused)

    @property
    def may_be_taken(self) -> bool:
        """Whether the provider may have the message."""
        return isinstance(self.given, answers.CallAccepted | answers.CallUnanswered)


class Told(Struct, frozen=True):
    """What the provider wants to tell of an attempt; the attempt is 0 where it only names the message."""

    message: str
    attempt: int
    state: MessageState
    reason: str = ""


class ModelProvider:
    """The provider, which outlives every process. `strikes` tells whether a trouble comes now."""

    def __init__(self, chance: Random, now: Callable[[], float], strikes: Callable[[str], bool]) -> None:
        self.calls: list[ProviderCall] = []
        self.news: list[Told] = []
        self._chance = chance
        self._now = now
        self._strikes = strikes

    def connect_seconds(self) -> float:
        """How long a call waits for a connection."""
        return self._chance.choice(_CONNECTING) if self._strikes("slow") else 0.0

    def call(self, account: str, key: str) -> tuple[Answer, float]:
        """Take note of a call: its answer, and after how long that comes."""
        message, _, attempt = key.partition("~")
        given = self._answer(key)
        call = ProviderCall(message, int(attempt), account, self._now(), given)
        self.calls.append(call)
        if call.may_be_taken:
            self._prepare_news(call)
        if isinstance(given, answers.CallUnanswered):
            return given, CALL_SECONDS
        return given, self._chance.choice(_SLOW if self._strikes("slow") else _QUICK)

    def _answer(self, key: str) -> Answer:
        if self._strikes("lost"):
            return answers.CallUnanswered("no answer")
        if self._strikes("busy"):
            pause = self._chance.choice((None, timedelta(seconds=3)))
            return answers.NotNow("429", too_fast=True, retry_after=pause)
        if self._strikes("away"):
            return answers.NotNow("503")
        if self._strikes("locked"):
            return answers.LoginRefused("401")
        if self._strikes("refuses"):
            return answers.CallRefused(self._chance.choice((Reason.REFUSED, Reason.UNREGISTERED)))
        return answers.CallAccepted(f"p-{key}")

    def _prepare_news(self, call: ProviderCall) -> None:
        attempt = self._chance.choice((call.attempt, call.attempt, call.attempt, 0))
        good = [Told(call.message, attempt, state) for state in (MessageState.DELIVERED, MessageState.READ)]
        told = good[: self._chance.randint(0, 2)]
        if self._chance.random() < 0.2:
            told.append(Told(call.message, attempt, MessageState.FAILED, self._chance.choice(_BAD)))
        self.news = [*self.news, *told, *self._chance.sample(told, self._chance.randint(0, len(told)))]
        del self.news[:-_LONGEST_MEMORY]


class ModelKind(ProviderKind):
    """The kind of provider that every account of a world is of, as one process calls it."""

    name = KIND
    channel = Channel.OTHER

    def __init__(self, process: Process, provider: ModelProvider) -> None:
        self._process = process
        self._provider = provider

    def check(self, fields: Mapping[str, Any], secret: Mapping[str, str]) -> None:
        """Anything will do."""

    def check_content(self, body: Mapping[str, Any]) -> None:
        """Anything will do."""

    def repeats_safely(self, fields: Mapping[str, Any]) -> bool:
        return bool(fields["safe"])

    def open(
        self, fields: Mapping[str, Any], secret: Mapping[str, str], outgoing: Outgoing, credential: str = ""
    ) -> Provider:
        return _Account(self._process, self._provider, credential)


class _Account:
    def __init__(self, process: Process, provider: ModelProvider, name: str) -> None:
        self._process = process
        self._provider = provider
        self._name = name

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        async def begin() -> tuple[Answer, float]:
            if not before_bytes():
                raise NotCalled
            return self._provider.call(self._name, key)

        if seconds := self._provider.connect_seconds():
            await asyncio.sleep(seconds)
        try:
            given, seconds = await self._process.take("provider.send", begin, key, to)
        except Unavailable:
            return answers.NotNow("no connection")
        await asyncio.sleep(seconds)
        return cast("Answer", given)

    async def close(self) -> None:
        """Nothing is open."""
