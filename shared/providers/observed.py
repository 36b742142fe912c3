"""Counts and times the calls of provider accounts, for every kind."""

import time
from typing import assert_never

from shared.domain.messages.answers import Answer, CallAccepted, CallRefused, CallUnanswered, LoginRefused, NotNow
from shared.providers import BeforeBytes, Content, NotCalled, Provider
from shared.runtime.metrics import PROVIDER_CALL_SECONDS, PROVIDER_CALLS

_UNANSWERED = "unanswered"
OUTCOMES = ("accepted", "refused", "not_now", "too_fast", "login_refused", _UNANSWERED)


class ObservedProvider(Provider):
    """An account whose calls are measured. A call that never began does not count."""

    def __init__(self, provider: Provider, kind: str) -> None:
        self._provider = provider
        self._seconds = PROVIDER_CALL_SECONDS.labels(kind)
        # Prometheus sees a rise only in a series that existed before.
        self._counts = {outcome: PROVIDER_CALLS.labels(kind, outcome) for outcome in OUTCOMES}

    async def send(self, content: Content, to: str, key: str, before_bytes: BeforeBytes) -> Answer:
        began = time.perf_counter()
        try:
            answer = await self._provider.send(content, to, key, before_bytes)
        except NotCalled:
            raise
        except Exception:
            self._count(_UNANSWERED, began)
            raise
        self._count(outcome_of(answer), began)
        return answer

    async def close(self) -> None:
        await self._provider.close()

    def _count(self, outcome: str, began: float) -> None:
        self._counts[outcome].inc()
        self._seconds.observe(time.perf_counter() - began)


def outcome_of(answer: Answer) -> str:
    """The answer in one word."""
    match answer:
        case CallAccepted():
            return "accepted"
        case CallRefused():
            return "refused"
        case NotNow(too_fast=True):
            return "too_fast"
        case NotNow():
            return "not_now"
        case LoginRefused():
            return "login_refused"
        case CallUnanswered():
            return _UNANSWERED
        case _:
            assert_never(answer)
