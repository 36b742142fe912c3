"""MongoDB, the only truth: one module per aggregate, each with a class around its collection.

A majority acknowledges and journals every write. Every read goes to the primary, whatever the URL says, because a
lagging secondary would show a running job as finished. Every move is a compare-and-set that returns the new value, or
`None` if another process moved first. If the reply of a compare-and-set is lost, a second read decides. Time is the
database's: `$currentDate` sets the fields `changed_at`, and ages are compared with `Store.now()`.

A query has equalities first and one range last, so that a real mongod and the embedded server both use an index.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Protocol, Self, TypeVar

import pymongo
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, InvalidURI
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from shared.accounts.store_apps import Apps, SigningSecretStore
from shared.accounts.store_callers import Revocations, Tokens, Users, WebSessions
from shared.bus.store_cuts import BusCuts, Cursors
from shared.bus.store_deliveries import BusDeadLetters, BusDeliveries
from shared.bus.store_log import BusFlushes, BusNotices
from shared.bus.store_queues import BusBacklogs, BusCompaction, BusStandings, GoneQueues
from shared.bus.store_replays import BusReplays
from shared.bus.store_subscriptions import BusSubscriptions
from shared.bus.store_topics import BusTopics
from shared.bus.store_wake_ups import WakeUps
from shared.clock.store_occurrences import Occurrences
from shared.clock.store_outcomes import DeadLetters, Outcomes
from shared.clock.store_schedules import Calendars, Schedules
from shared.console.store_audit import AuditLog
from shared.console.store_bulk import BulkActions, BulkJobsOf
from shared.console.store_idempotency import IdempotencyKeys, Imports
from shared.console.store_overview import Minutes, NamespaceLists, Processes
from shared.core.errors import Invalid
from shared.drivers.mongo.database import Schema, StoreInspection, find_wanted, trust_files
from shared.drivers.mongo.documents import Aggregate, Document, time_of, translate_errors
from shared.drivers.mongo.outbox import Outbox
from shared.jobs.store_batches import Batches, BatchSums
from shared.jobs.store_files import Files, FileUploads
from shared.jobs.store_groups import Divisions, Groups
from shared.jobs.store_jobs import Jobs
from shared.jobs.store_milestones import Mails, Milestones
from shared.jobs.store_searches import ClosedJobs, JobLists, OpenJobs
from shared.jobs.store_templates import Templates
from shared.messages.store_credentials import Credentials, SendLimits
from shared.messages.store_jobs import MessageBatches, MessageJobs, Reopening
from shared.messages.store_kept_ledgers import KeptLedgers, Redaction
from shared.messages.store_ledger import LedgerLists, MessageLedger, MessageSums
from shared.messages.store_singles import SingleContents, SingleMessages
from shared.messages.store_suppressions import Suppressions
from shared.push.store import Feedbacks, HeldOut
from shared.runtime.server_settings import NO_FILES, TlsSettings

DURABLE = WriteConcern(w="majority", j=True)
CONNECT_MS = 5_000

AnyAggregate = TypeVar("AnyAggregate", bound=Aggregate)


class Observe(Protocol):
    """Wraps an aggregate so that it sees every call; `name` is for people."""

    def __call__(self, aggregate: AnyAggregate, name: str, /) -> AnyAggregate: ...


def _leave_unobserved(aggregate: AnyAggregate, _name: str, /) -> AnyAggregate:
    return aggregate


class Store:
    """The collections of one database. It connects at the first use."""

    def __init__(  # noqa: PLR0915 - a line for each collection
        self,
        client: AsyncMongoClient[Document],
        database: AsyncDatabase[Document],
        observe: Observe = _leave_unobserved,
    ) -> None:
        self._client = client
        self._database = database
        self._observe = observe
        self._aggregates: dict[str, Aggregate] = {}
        self._makers: list[Callable[[AsyncDatabase[Document]], Aggregate]] = []
        self.apps = self.add("apps", Apps)
        self.templates = self.add("templates", Templates)
        self.users = self.add("users", Users)
        self.tokens = self.add("tokens", Tokens)
        self.sessions = self.add("sessions", WebSessions)
        self.jobs = self.add("jobs", Jobs)
        self.open_jobs = self.add("open_jobs", OpenJobs)
        self.closed_jobs = self.add("closed_jobs", ClosedJobs)
        self.job_lists = self.add("job_lists", JobLists)
        self.mails = self.add("mails", Mails)
        self.milestones = self.add("milestones", Milestones)
        self.outbox = self.add("outbox", Outbox)
        self.batches = self.add("batches", Batches)
        self.batch_sums = self.add("batch_sums", BatchSums)
        self.groups = self.add("groups", Groups)
        self.files = self.add("files", Files)
        self.uploads = self.add("uploads", FileUploads)
        self.divisions = self.add("divisions", Divisions)
        self.held_out = self.add("held_out", HeldOut)
        self.feedbacks = self.add("feedbacks", Feedbacks)
        self.schedules = self.add("schedules", Schedules)
        self.calendars = self.add("calendars", Calendars)
        self.occurrences = self.add("occurrences", Occurrences)
        self.upkeep_turns = self.add("upkeep_turns", partial(Occurrences, name="upkeep_turns"))
        self.outcomes = self.add("outcomes", Outcomes)
        self.dead_letters = self.add("dead_letters", DeadLetters)
        self.idempotency = self.add("idempotency", IdempotencyKeys)
        self.imports = self.add("imports", Imports)
        self.revocations = self.add("revocations", Revocations)
        self.signing_secrets = self.add("signing_secrets", SigningSecretStore)
        self.audit = self.add("audit", AuditLog)
        self.processes = self.add("processes", Processes)
        self.minutes = self.add("minutes", Minutes)
        self.bulk_actions = self.add("bulk_actions", BulkActions)
        self.bulk_jobs = self.add("bulk_jobs", BulkJobsOf)
        self.namespaces = self.add("namespaces", NamespaceLists)
        self.credentials = self.add("credentials", Credentials)
        self.message_batches = self.add("message_batches", MessageBatches)
        self.message_jobs = self.add("message_jobs", MessageJobs)
        self.reopening = self.add("reopening", Reopening)
        self.messages = self.add("messages", MessageLedger)
        self.message_lists = self.add("message_lists", LedgerLists)
        self.message_sums = self.add("message_sums", MessageSums)
        self.singles = self.add("singles", SingleMessages)
        self.single_contents = self.add("single_contents", SingleContents)
        self.send_limits = self.add("send_limits", SendLimits)
        self.kept_ledgers = self.add("kept_ledgers", KeptLedgers)
        self.redaction = self.add("redaction", Redaction)
        self.suppressions = self.add("suppressions", Suppressions)
        self.bus_topics = self.add("bus_topics", BusTopics)
        self.bus_subscriptions = self.add("bus_subscriptions", BusSubscriptions)
        self.bus_flushes = self.add("bus_flushes", BusFlushes)
        self.bus_cursors = self.add("bus_cursors", Cursors)
        self.bus_gone_queues = self.add("bus_gone_queues", GoneQueues)
        self.bus_notices = self.add("bus_notices", BusNotices)
        self.bus_replays = self.add("bus_replays", BusReplays)
        self.bus_standings = self.add("bus_standings", BusStandings)
        self.bus_backlogs = self.add("bus_backlogs", BusBacklogs)
        self.bus_wake_ups = self.add("bus_wake_ups", WakeUps)
        self.bus_compaction = self.add("bus_compaction", BusCompaction)
        self.bus_cuts = self.add("bus_cuts", BusCuts)
        self.bus_deliveries = self.add("bus_deliveries", BusDeliveries)
        self.bus_dead_letters = self.add("bus_dead_letters", BusDeadLetters)
        self.schema = self.add("schema", Schema)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        timeout_seconds: float = 20,
        observe: Observe = _leave_unobserved,
        tls: TlsSettings = NO_FILES,
    ) -> Self:
        """The store at a `mongodb://…/database` URL. `timeout_seconds` limits an operation with its retries. `observe`
        gets each aggregate before its first use. Raises `Invalid` if the URL is malformed or names no database, or TLS
        files are unusable."""
        try:
            client: AsyncMongoClient[Document] = AsyncMongoClient(
                url,
                appname="carillon",
                serverSelectionTimeoutMS=CONNECT_MS,
                connectTimeoutMS=CONNECT_MS,
                timeoutMS=int(timeout_seconds * 1000),
                tz_aware=True,
            )
            database = client.get_default_database().with_options(
                write_concern=DURABLE, read_concern=ReadConcern("majority"), read_preference=ReadPreference.PRIMARY
            )
        except (InvalidURI, ConfigurationError, ValueError) as error:
            raise Invalid(f"not a mongodb:// URL with a database: {error}", field="store.url") from error
        trust_files(client, url, tls)
        return cls(client, database, observe)

    def add(self, name: str, make: Callable[[AsyncDatabase[Document]], AnyAggregate]) -> AnyAggregate:
        aggregate = self._observe(make(self._database), f"store.{name}")
        self._aggregates[name] = aggregate
        self._makers.append(make)
        return aggregate

    async def setup(self) -> None:
        aggregates = [*(each for each in self._aggregates.values() if each is not self.schema), self.schema]
        # An index of millions of documents takes minutes, longer than the client's timeout allows.
        # `timeout(None)` would mean the client's own limit.
        with pymongo.timeout(0):
            await self._make_indexes()
            for aggregate in aggregates:
                await aggregate.setup()

    async def _make_indexes(self) -> None:
        wanted = await find_wanted(self._makers)
        for name, models in wanted.models.items():
            with translate_errors():
                await self._database[name].create_indexes(models, commitQuorum="majority")

    @property
    def inspection(self) -> StoreInspection:
        return StoreInspection(self._database, self._makers)

    async def now(self) -> datetime:
        return (await self.read_clock())[0]

    async def read_clock(self) -> tuple[datetime, str]:
        """The database's clock, to the millisecond, and its identity: one process on one host."""
        with translate_errors():
            reply = await self._database.command("hello")
        process = reply.get("topologyVersion", {}).get("processId", "")
        return time_of(reply), f"{reply.get('me', '')}/{process}"

    async def ping(self) -> None:
        await self.now()

    async def close(self) -> None:
        await self._client.close()
