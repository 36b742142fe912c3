"""The part of the bus that several processes share."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from services.parts import Part
from shared.domain.bus.cutting import BacklogLimits
from shared.domain.bus.health import Care
from shared.domain.documents import LogEnds
from shared.flow.bus.deliveries import BusDeadLetterFlow
from shared.flow.bus.flushing import UnwokenUpkeep
from shared.flow.bus.replays import BusReplayFlow, Replaying, ReplayTools
from shared.flow.bus.standing import BusPressure, QueueStandings
from shared.flow.bus.topics import TopicFlow, read_log_ends
from shared.flow.bus.waking import Waker
from shared.runtime.lifecycle import Closing, Component
from shared.stream import TopicSpec

if TYPE_CHECKING:  # these bring cryptography along, and not every process needs it
    from shared.flow.bus.subscriptions import Subscribing
    from shared.flow.bus.topics import EventPublisher
    from shared.flow.clock.revocations import PauseNamespace


class BusPart(Part):
    @cached_property
    def topics(self) -> TopicFlow:
        return TopicFlow(
            self.store, self.capabilities.time.now, self._log_ends, most=self.settings.bus.topics_per_namespace
        )

    @cached_property
    def publisher(self) -> "EventPublisher":
        from shared.flow.bus.topics import EventPublisher

        return EventPublisher(self.topics, self.capabilities.stream, self.capabilities.time.now, self.settings.bus)

    @cached_property
    def subscribing(self) -> "Subscribing":
        from shared.flow.bus.subscriptions import Subscribing, SubscriptionQuotas

        chosen = self.settings.bus
        quotas = SubscriptionQuotas(
            chosen.subscriptions_per_namespace, chosen.topics_per_subscription, chosen.topics_of_subscriptions
        )
        return Subscribing(self.store, self.capabilities.key_ring, self.capabilities.time.now, quotas, self._log_ends)

    @cached_property
    def waker(self) -> Waker:
        clock, given = self.settings.scheduler, self.capabilities
        # The clock claims due wake-ups a little early.
        handed_for = timedelta(seconds=clock.call_lease_seconds + clock.lookahead_seconds)
        tick = timedelta(seconds=clock.tick_seconds)
        return Waker(self.store, given.broker, given.time, handed_for=handed_for, tick=tick)

    def components(self, process: str) -> Sequence[Component]:
        return (Closing("wake-ups due soon", self.waker.close),) if process != "feedback" else ()

    @cached_property
    def dead_letters(self) -> BusDeadLetterFlow:
        return BusDeadLetterFlow(self.store, self.waker, self.replays, self.capabilities.time.now)

    @cached_property
    def replays(self) -> BusReplayFlow:
        given, log_topic = self.capabilities, self.settings.bus.log_topic
        return BusReplayFlow(
            self.store, given.stream, given.broker, self.subscribing, given.time.now, log_topic=log_topic
        )

    @cached_property
    def backlog_limits(self) -> BacklogLimits:
        return BacklogLimits(self.settings.bus.backlog_events, self.settings.bus.backlog_bytes)

    @cached_property
    def replaying(self) -> Replaying:
        given = self.capabilities
        return Replaying(
            ReplayTools(
                store=self.store,
                stream=given.stream,
                broker=given.broker,
                wake=self.waker.wake,
                now=given.time.now,
                limits=self.backlog_limits,
                log_topic=self.settings.bus.log_topic,
            )
        )

    @cached_property
    def care(self) -> Care:
        chosen = self.settings.bus
        return Care(
            max_backoff=timedelta(milliseconds=chosen.max_backoff_ms),
            heal=chosen.heal,
            damage=chosen.damage,
            suspend_after=timedelta(days=chosen.suspend_after_days),
        )

    @cached_property
    def standings(self) -> QueueStandings:
        deadline = timedelta(milliseconds=self.settings.bus.scaling_deadline_ms)
        return QueueStandings(self.store, self.capabilities.time.now, deadline=deadline)

    @cached_property
    def pressure(self) -> BusPressure:
        given, log = self.capabilities, self.settings.bus.log_topic
        return BusPressure(self.store, given.stream, self.standings, given.time.now, log=log)

    @cached_property
    def unwoken(self) -> UnwokenUpkeep:
        return UnwokenUpkeep(self.store, self.waker.wake, self.capabilities.time.now)

    async def _log_ends(self) -> LogEnds:
        chosen = self.settings.bus
        return await read_log_ends(self.capabilities.stream, chosen.log_topic, chosen.publish_seconds)

    def stream_topics(self) -> Mapping[str, TopicSpec]:
        chosen = self.settings.bus
        return {chosen.log_topic: TopicSpec(chosen.log_partitions, timedelta(days=chosen.log_days))}

    def on_revoked(self) -> "Sequence[PauseNamespace]":
        return (self._pause_subscriptions,)

    async def _pause_subscriptions(self, namespace: str, reason: str) -> int:
        return await self.subscribing.pause_namespace(namespace, reason)

    async def take_up(self) -> None:
        await self.store.bus_wake_ups.let_all_go(await self.capabilities.time.now())
        await self.unwoken.run_once(after=timedelta(0))
        await self.replaying.requeue_lost(timedelta(0))
