"""The flows, feeds and rules of each subject, each made on first use.

Flows that bring drivers or cryptography along are imported on first use, because not every process needs them.
"""

from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from services.wiring.servers import Servers
from shared.accounts.removal import AppRemoval, Signing
from shared.bus.deliveries import BusDeadLetterFlow
from shared.bus.flushing import UnwokenUpkeep
from shared.bus.replays import BusReplayFlow, Replaying, ReplayTools
from shared.bus.rules.cutting import BacklogLimits
from shared.bus.rules.health import Care
from shared.bus.standing import BusPressure, QueueStandings
from shared.bus.topics import TopicFlow, read_log_ends
from shared.bus.waking import Waker
from shared.clock.anchors import AnchorFlow
from shared.clock.revocations import RevocationFlow
from shared.clock.schedules import ScheduleFlow
from shared.clock.settlement import Settlement
from shared.console.audit import SystemRecords
from shared.console.bulk import BulkFlow, BulkJobs, BulkLetters, BulkSchedules, BulkThings
from shared.console.overview import OverviewReader
from shared.console.rules.signs import ROLES
from shared.core.documents import LogEnds
from shared.drivers.http.signing import check_secret
from shared.drivers.kafka import TopicSpec
from shared.jobs.feed import Feed
from shared.jobs.finish import Breaker
from shared.jobs.kinds import JobKinds
from shared.jobs.moves import GroupFlow, JobFlow
from shared.jobs.retention import JobBelongings, JobRemoval
from shared.jobs.watch import JobWatch
from shared.messages.feeding import CredentialFeed
from shared.messages.figures import MessageFigures
from shared.messages.halting import BounceBreaker
from shared.messages.kind import JobRetry, MessageKind
from shared.messages.retention import MessageBelongings
from shared.messages.singles import SingleFlow
from shared.push.kind import ControlGroupFile, PushKind
from shared.push.rules.records import RecordRules

if TYPE_CHECKING:
    from shared.bus.subscriptions import Subscribing
    from shared.bus.topics import EventPublisher
    from shared.drivers.postgres.recipient_tables import RecipientTables
    from shared.messages.barring import UnsubscribeLinks
    from shared.messages.credentials import CredentialFlow
    from shared.messages.receipts import CallbackFlow, Receipts


class Rooms:
    """The subjects of one process."""

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self.accounts = AccountsRoom(self)
        self.jobs = JobsRoom(self)
        self.push = PushRoom(self)
        self.clock = ClockRoom(self)
        self.messages = MessagesRoom(self)
        self.bus = BusRoom(self)
        self.console = ConsoleRoom(self)


class Room:
    """One subject in a process."""

    def __init__(self, rooms: Rooms) -> None:
        self.rooms = rooms
        self.servers = rooms.servers
        self.settings = rooms.servers.settings
        self.store = rooms.servers.store


class AccountsRoom(Room):
    """Callers and their rights."""

    @cached_property
    def signing(self) -> Signing:
        """Raises `Invalid` if the deployment's secret cannot sign."""
        key = self.settings.callbacks.signing_secret
        if key:
            check_secret(key, "callbacks.signing_secret")
        return Signing(self.store, self.servers.time.now, deployment_key=key)

    @cached_property
    def revocations(self) -> RevocationFlow:
        """Schedules of a revoked caller are paused by the flow itself, other things by these functions."""
        return RevocationFlow(self.store, self.servers.time.now, [self.rooms.bus.pause_subscriptions])

    @cached_property
    def removal(self) -> AppRemoval:
        owned = JobBelongings(self.store, self.rooms.jobs.removal), MessageBelongings(self.store)
        return AppRemoval(self.store, owned)


class JobsRoom(Room):
    """Jobs of every kind."""

    @cached_property
    def kinds(self) -> JobKinds:
        return JobKinds([self.rooms.messages.kind, self.rooms.push.kind])

    @cached_property
    def feed(self) -> Feed:
        return Feed(self.store, self.servers.broker, self.kinds)

    @cached_property
    def flow(self) -> JobFlow:
        servers = self.servers
        return JobFlow(self.store, self.feed, servers.clock, role=servers.service, mails=self.has_mails)

    @cached_property
    def groups(self) -> GroupFlow:
        return GroupFlow(self.store, self.flow)

    @cached_property
    def breaker(self) -> Breaker:
        servers, share = self.servers, self.settings.worker.max_batch_failure
        return Breaker(self.store, servers.clock, role=servers.service, max_failed_share=share, mails=self.has_mails)

    @cached_property
    def watch(self) -> JobWatch:
        return JobWatch(self.store, self.servers.time)

    @cached_property
    def removal(self) -> JobRemoval:
        tell, days = self.rooms.console.system_records.tell_of_jobs, self.settings.scheduler.job_retention_days
        return JobRemoval(self.store, self.servers.time, self.kinds, tell, kept_days=days)

    @property
    def has_mails(self) -> bool:
        """Whether mails about jobs are sent."""
        return self.servers.mail.delivers


class PushRoom(Room):
    """Push as a kind of job."""

    @cached_property
    def record_rules(self) -> RecordRules:
        """The rules for records: the same for workers that send them and for previews of the API."""
        return RecordRules(
            push_expiry=self.settings.worker.push_expiry_unit,
            time_to_live=self.settings.worker.gcm_time_to_live,
            max_record_bytes=self.settings.stream.max_record_bytes,
        )

    @cached_property
    def kind(self) -> PushKind:
        servers, folder = self.servers, self.settings.blobs.control_group_folder
        control_group = ControlGroupFile(self.store, servers.blobs, servers.clock, folder=folder)
        return PushKind(servers.stream, control_group, self.settings.stream)


class ClockRoom(Room):
    """Schedules and their settlement."""

    @cached_property
    def schedules(self) -> ScheduleFlow:
        return ScheduleFlow(self.store, self.servers.time)

    @cached_property
    def anchors(self) -> AnchorFlow:
        return AnchorFlow(self.store, self.servers.time)

    @cached_property
    def settlement(self) -> Settlement:
        return Settlement(self.store, tick=timedelta(seconds=self.settings.scheduler.tick_seconds))


class MessagesRoom(Room):
    """Messages as a kind of job, single messages, and the credentials that send both."""

    @cached_property
    def kind(self) -> MessageKind:
        return MessageKind(self.store, lambda: self.tables, self.feed, self.retry)

    @cached_property
    def feed(self) -> CredentialFeed:
        return CredentialFeed(self.store, self.servers.broker)

    @cached_property
    def retry(self) -> JobRetry:
        return JobRetry(self.store, self.feed, self.servers.clock)

    @cached_property
    def bounces(self) -> BounceBreaker:
        servers, mails = self.servers, self.rooms.jobs.has_mails
        return BounceBreaker(self.store, servers.clock, role=servers.service, mails=mails)

    @cached_property
    def tables(self) -> "RecipientTables":
        from shared.drivers.postgres.recipient_tables import RecipientTables

        return RecipientTables.beside(self.servers.audience)

    @cached_property
    def credentials(self) -> "CredentialFlow":
        from shared.messages.credentials import CredentialFlow

        servers = self.servers
        return CredentialFlow(
            self.store,
            lambda: servers.provider_kinds,
            servers.key_ring,
            servers.provider_outgoing,
            servers.clock,
            is_in_use=self._is_in_use,
        )

    async def _is_in_use(self, credential_id: str) -> bool:
        """Whether open jobs or pending messages use it."""
        store = self.store
        return await store.message_jobs.has_open(credential_id) or await store.singles.has_pending(credential_id)

    @cached_property
    def links(self) -> "UnsubscribeLinks":
        from shared.messages.barring import UnsubscribeLinks

        return UnsubscribeLinks(self.servers.key_ring, public_url=self.settings.api.public_url)

    @cached_property
    def receipts(self) -> "Receipts":
        from shared.messages.receipts import Receipts

        return Receipts(self.store, self.servers.clock)

    @cached_property
    def callbacks(self) -> "CallbackFlow":
        from shared.messages.receipts import CallbackFlow

        servers = self.servers
        kinds, outgoing = (lambda: servers.provider_kinds), servers.provider_outgoing
        return CallbackFlow(self.store, kinds, servers.key_ring, outgoing, self.receipts)

    @cached_property
    def singles(self) -> SingleFlow:
        return SingleFlow(self.store, self.servers.broker, self.servers.time)

    @cached_property
    def figures(self) -> MessageFigures:
        return MessageFigures(self.store)


class BusRoom(Room):
    """Topics, publishing, subscriptions, and figures of queues."""

    @cached_property
    def stream_topics(self) -> dict[str, TopicSpec]:
        """The topics of the stream that `carillon init` makes, and that a process checks before it works."""
        chosen = self.settings.bus
        return {chosen.log_topic: TopicSpec(chosen.log_partitions, timedelta(days=chosen.log_days))}

    @cached_property
    def topics(self) -> TopicFlow:
        most = self.settings.bus.topics_per_namespace
        return TopicFlow(self.store, self.servers.time.now, self._log_ends, most=most)

    @cached_property
    def publisher(self) -> "EventPublisher":
        from shared.bus.topics import EventPublisher

        return EventPublisher(self.topics, self.servers.stream, self.servers.time.now, self.settings.bus)

    @cached_property
    def subscribing(self) -> "Subscribing":
        from shared.bus.subscriptions import Subscribing, SubscriptionQuotas

        chosen = self.settings.bus
        quotas = SubscriptionQuotas(
            chosen.subscriptions_per_namespace, chosen.topics_per_subscription, chosen.topics_of_subscriptions
        )
        return Subscribing(self.store, self.servers.key_ring, self.servers.time.now, quotas, self._log_ends)

    async def _log_ends(self) -> LogEnds:
        chosen = self.settings.bus
        return await read_log_ends(self.servers.stream, chosen.log_topic, chosen.publish_seconds)

    async def pause_subscriptions(self, namespace: str, reason: str) -> int:
        return await self.subscribing.pause_namespace(namespace, reason)

    @cached_property
    def waker(self) -> Waker:
        chosen, servers = self.settings.scheduler, self.servers
        # The clock claims due wake-ups a little early.
        handed_for = timedelta(seconds=chosen.call_lease_seconds + chosen.lookahead_seconds)
        tick = timedelta(seconds=chosen.tick_seconds)
        return Waker(self.store, servers.broker, servers.time, handed_for=handed_for, tick=tick)

    @cached_property
    def unwoken(self) -> UnwokenUpkeep:
        return UnwokenUpkeep(self.store, self.waker.wake, self.servers.time.now)

    @cached_property
    def dead_letters(self) -> BusDeadLetterFlow:
        return BusDeadLetterFlow(self.store, self.waker, self.replays, self.servers.time.now)

    @cached_property
    def replays(self) -> BusReplayFlow:
        servers, log = self.servers, self.settings.bus.log_topic
        return BusReplayFlow(
            self.store, servers.stream, servers.broker, self.subscribing, servers.time.now, log_topic=log
        )

    @cached_property
    def replaying(self) -> Replaying:
        return Replaying(
            ReplayTools(
                store=self.store,
                stream=self.servers.stream,
                broker=self.servers.broker,
                wake=self.waker.wake,
                now=self.servers.time.now,
                limits=self.backlog_limits,
                log_topic=self.settings.bus.log_topic,
            )
        )

    @cached_property
    def backlog_limits(self) -> BacklogLimits:
        return BacklogLimits(self.settings.bus.backlog_events, self.settings.bus.backlog_bytes)

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
        return QueueStandings(self.store, self.servers.time.now, deadline=deadline)

    @cached_property
    def pressure(self) -> BusPressure:
        servers, log = self.servers, self.settings.bus.log_topic
        return BusPressure(self.store, servers.stream, self.standings, servers.time.now, log=log)


class ConsoleRoom(Room):
    """Bulk actions, the overview, and the audit's records of Carillon's own acts."""

    @cached_property
    def system_records(self) -> SystemRecords:
        return SystemRecords(self.store, self.servers.time, role=self.servers.service)

    @cached_property
    def overviews(self) -> OverviewReader:
        return OverviewReader(self.store, self.servers.broker, self.servers.time, ROLES)

    @cached_property
    def bulk(self) -> BulkFlow:
        schedules, jobs = self.rooms.clock.schedules, self.rooms.jobs.flow
        things: dict[str, BulkThings] = {
            "dead-letter": BulkLetters(self.store, schedules),
            "schedule": BulkSchedules(self.store, schedules),
            "job": BulkJobs(self.store, jobs),
        }
        return BulkFlow(self.store, self.servers.broker, self.servers.time, things)
