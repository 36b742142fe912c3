"""Trying a receiver: one call now, made like a delivery; nothing is stored."""

import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from shared.domain.bus.deliveries import DeliveryAttempt
from shared.domain.bus.subscriptions import EventSubscription
from shared.domain.bus.trials import make_trial
from shared.domain.errors import TooMany
from shared.flow.bus.receivers import Receivers
from shared.flow.bus.subscribing import Subscribing
from shared.flow.time import DatabaseTime

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
