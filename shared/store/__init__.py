"""MongoDB, the only truth: one module per aggregate, each with a class around its collection.

Every write is acknowledged by a majority and journalled. Every read goes to the primary, whatever the URL says: a
secondary that lags behind would show a running job as finished. Every move is a compare-and-set that answers with the
new value or `None`, which means that somebody else moved first. A compare-and-set whose reply was lost is decided by
reading again. Time is the database's: `changed_at` fields are set by `$currentDate`, and ages are told against
`Store.now()`.

Queries are equality first, one range last, so that a real mongod and the stand-in server both take them from an index.
"""

from datetime import UTC, datetime
from typing import Self

from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, InvalidURI
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from shared.domain.errors import Invalid
from shared.store.accounts.apps import Apps
from shared.store.accounts.revocations import Revocations
from shared.store.accounts.signing_secrets import SigningSecretStore
from shared.store.accounts.tokens import Tokens
from shared.store.accounts.users import Users
from shared.store.clock.dead_letters import DeadLetters
from shared.store.clock.occurrences import Occurrences
from shared.store.clock.outcomes import Outcomes
from shared.store.clock.schedules import Schedules
from shared.store.documents import Document, translated
from shared.store.idempotency import IdempotencyKeys
from shared.store.imports import Imports
from shared.store.jobs.batches import Batches
from shared.store.jobs.divisions import Divisions
from shared.store.jobs.files import Files
from shared.store.jobs.groups import Groups
from shared.store.jobs.jobs import Jobs
from shared.store.jobs.mails import Mails
from shared.store.jobs.templates import Templates
from shared.store.push.feedbacks import Feedbacks
from shared.store.push.held_out import HeldOut

DURABLE = WriteConcern(w="majority", j=True)
CONNECT_MS = 5_000
COLLECTIONS = (
    "apps",
    "templates",
    "users",
    "tokens",
    "jobs",
    "mails",
    "batches",
    "groups",
    "files",
    "divisions",
    "held_out",
    "feedbacks",
    "schedules",
    "occurrences",
    "outcomes",
    "dead_letters",
    "idempotency",
    "imports",
    "revocations",
    "signing_secrets",
)


class Store:
    """The collections of one database. Opens lazily: a server that is away shows at the first use."""

    def __init__(self, client: AsyncMongoClient[Document], database: AsyncDatabase[Document]) -> None:
        self._client = client
        self._database = database
        self.apps = Apps(database)
        self.templates = Templates(database)
        self.users = Users(database)
        self.tokens = Tokens(database)
        self.jobs = Jobs(database)
        self.mails = Mails(database)
        self.batches = Batches(database)
        self.groups = Groups(database)
        self.files = Files(database)
        self.divisions = Divisions(database)
        self.held_out = HeldOut(database)
        self.feedbacks = Feedbacks(client, database)
        self.schedules = Schedules(database)
        self.occurrences = Occurrences(database)
        self.outcomes = Outcomes(database)
        self.dead_letters = DeadLetters(database)
        self.idempotency = IdempotencyKeys(database)
        self.imports = Imports(database)
        self.revocations = Revocations(database)
        self.signing_secrets = SigningSecretStore(database)

    @classmethod
    def open(cls, url: str, *, timeout_seconds: float = 20) -> Self:
        """The store at a `mongodb://…/database` URL. An operation is given up after `timeout_seconds`, retries
        included.

        Raises:
            Invalid: the URL cannot be read or names no database.
        """
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
        except (InvalidURI, ConfigurationError) as error:
            raise Invalid(f"not a mongodb:// URL with a database: {error}", field="store.url") from error
        return cls(client, database)

    async def setup(self) -> None:
        """Make every index, idempotently (`carillon init`)."""
        for name in COLLECTIONS:
            with translated():
                await getattr(self, name).setup()

    async def now(self) -> datetime:
        """The database's clock."""
        with translated():
            reply = await self._database.command("hello")
        measured: datetime = reply["localTime"]
        # A command's reply is decoded with the driver's own defaults: naive, in UTC.
        return measured.replace(tzinfo=UTC)

    async def ping(self) -> None:
        """Raise `Unavailable` when the server does not answer."""
        await self.now()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()
