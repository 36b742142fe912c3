"""Calling a receiver: one signed POST of one delivery, through the guard for outgoing calls. A trial is one call now,
made like a delivery; nothing is stored.
"""

import asyncio
import secrets
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import structlog

from shared.bus.rules.deliveries import CallResult, DeliveryAttempt, EventDelivery, make_trial
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.subscriptions import Subscribing, open_secrets
from shared.core.errors import Conflict, TooMany, Unavailable
from shared.drivers.http import Answer, Blocked, Call, Outgoing, Unreachable
from shared.drivers.secrets import KeyRing
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)


class Receivers:
    def __init__(self, outgoing: Outgoing, ring: KeyRing, time: DatabaseTime) -> None:
        self._outgoing = outgoing
        self._ring = ring
        self._time = time

    async def call(self, delivery: EventDelivery, subscription: EventSubscription) -> CallResult:
        """Call the receiver once. An unexpected error counts against the receiver, which may have caused it.
        `Unavailable` means that the call was not made, through no fault of the receiver."""
        at, callback = self._time.reckon(), subscription.callback
        began = asyncio.get_running_loop().time()
        try:
            secrets = open_secrets(self._ring, subscription, at)
            answer = await self._outgoing.call(self._make_call(delivery, subscription, int(at.timestamp()), secrets))
        except (Unreachable, Blocked, Conflict) as error:
            attempt = DeliveryAttempt(at=at, ms=_ms_since(began), error=str(error))
            return CallResult(callback=callback, attempt=attempt)
        except Unavailable:
            raise
        except Exception:
            log.exception("a receiver cannot be called", queue=delivery.queue)
            attempt = DeliveryAttempt(at=at, ms=_ms_since(began), error="a fault of Carillon")
            return CallResult(callback=callback, attempt=attempt)
        attempt = DeliveryAttempt(at=at, ms=_ms_since(began), status=answer.status, excerpt=answer.excerpt)
        return CallResult(callback=callback, attempt=attempt, retry_after=_retry_after(answer))

    def _make_call(
        self, delivery: EventDelivery, subscription: EventSubscription, timestamp: int, secrets: tuple[str, ...]
    ) -> Call:
        told = {"carillon-sequence": str(delivery.sequence), "carillon-attempt": str(delivery.made + 1)}
        return Call(
            url=subscription.callback,
            method="POST",
            headers={**subscription.headers, **_basic_auth(subscription.uuid), **told},
            body=delivery.body,
            message_id=delivery.id,
            timestamp=timestamp,
            secrets=secrets,
            owner=subscription.namespace,
        )


def _basic_auth(user: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'{user}:x'.encode()).decode()}"} if user else {}


def _ms_since(began: float) -> int:
    return round((asyncio.get_running_loop().time() - began) * 1000)


def _retry_after(answer: Answer) -> timedelta:
    return timedelta(seconds=0 if answer.accepted else answer.retry_after_seconds or 0)


AT_ONCE = 100
OF_NAMESPACE = 10
_ID_BYTES = 16


class ReceiverTrials:
    """Tries receivers: at most `AT_ONCE` in a process, `OF_NAMESPACE` of a namespace and one of a subscription, because
    a call may hang until its timeout."""

    def __init__(self, subscribing: Subscribing, receivers: Receivers, time: DatabaseTime) -> None:
        self._subscribing = subscribing
        self._receivers = receivers
        self._time = time
        self._tried: set[str] = set()
        self._of_namespaces: Counter[str] = Counter()

    async def try_receiver(self, namespace: str, key: str) -> DeliveryAttempt:
        """Send a made-up event to a subscription's receiver, whatever its state and health. Raises `TooMany`."""
        subscription = await self._subscribing.get(namespace, key)
        now = await self._time.now()
        with self._hold_place(subscription):
            trial = make_trial(subscription, secrets.token_hex(_ID_BYTES), now)
            return (await self._receivers.call(trial, subscription)).attempt

    @contextmanager
    def _hold_place(self, subscription: EventSubscription) -> Iterator[None]:
        id, namespace = subscription.id, subscription.namespace
        if id in self._tried:
            raise TooMany("a test of this subscription is under way", retry_after_seconds=1)
        if self._of_namespaces[namespace] >= OF_NAMESPACE:
            raise TooMany(f"{OF_NAMESPACE} tests of this namespace are under way", retry_after_seconds=1)
        if len(self._tried) >= AT_ONCE:
            raise TooMany(f"{AT_ONCE} tests are under way in this process", retry_after_seconds=1)
        self._tried.add(id)
        self._of_namespaces[namespace] += 1
        try:
            yield
        finally:
            self._tried.discard(id)
            self._of_namespaces -= Counter((namespace,))
