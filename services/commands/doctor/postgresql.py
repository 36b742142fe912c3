"""The questions to PostgreSQL, which belongs to our users: its remedies are for the owner of the tables."""

from collections.abc import Sequence
from urllib.parse import parse_qs, unquote, urlsplit

from services.commands.doctor.examination import ADDRESS, ROUND_TRIP, TLS, Address, Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, warn, well
from services.commands.doctor.mongodb import MONGODB
from services.commands.doctor.shell import identifier, psql
from shared.audience.inspection import AudienceInspection, FoundTable
from shared.domain.audience.audiences import table_name
from shared.domain.errors import NotFound
from shared.domain.push.records import SERVICES
from shared.store import Store

OLDEST = 130000
MOST_APPS = 500
_POSTGRESQL_PORT = 5432
# The length of the message, and the code that asks for TLS.
_SSL_REQUEST = (8).to_bytes(4) + (80877103).to_bytes(4)
_ENCRYPTED = {"require", "verify-ca", "verify-full"}
_KINDS = {"v": "view", "m": "materialized view", "f": "foreign table"}
# What a push needs of a column that is missing; the others are texts.
_COLUMN_TYPES = {"seq_id": "bigserial"}


class PostgreSql(Examination):
    """The push tables."""

    of = "PostgreSQL"
    setting = "audience.url"
    tls_greeting = _SSL_REQUEST

    def __init__(self, url: str, inspection: AudienceInspection, store: Store) -> None:
        parts = urlsplit(url)
        self._inspection = inspection
        self._store = store
        self._user = unquote(parts.username or "")
        self._database = unquote(parts.path[1:])
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
        self._server = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", path="/postgres").geturl()
        self.addresses = [Address(parts.hostname, parts.port or _POSTGRESQL_PORT)] if parts.hostname else []
        self.uses_tls = parse_qs(parts.query).get("sslmode", [""])[0] in _ENCRYPTED
        self.where = self._url.partition("://")[2]

    async def check_login(self) -> Opinions:
        """It lets us in, and has our database."""
        try:
            version = await self._inspection.read_version()
        except NotFound:
            statement = f"CREATE DATABASE {identifier(self._database)}"
            return fault(f"there is no database {self._database}", psql(self._server, statement))
        return well(f"PostgreSQL {version.text.partition(' ')[0]} lets us in")

    async def check_version(self) -> Opinions:
        """It is one that we know."""
        version = await self._inspection.read_version()
        if version.number < OLDEST:
            return fault(f"PostgreSQL {version.text} is older than 13")
        return well("13 or later")

    async def ping(self) -> None:
        await self._inspection.ping()

    async def check_tables(self) -> Opinions:
        """Every app has a push table that we can read."""
        apps, found = await self._find_tables()
        names = {table.name for table in found}
        opinions: list[Opinion] = []
        for app in apps:
            if not names.intersection(table_name(app, service) for service in SERVICES):
                wanted = " or ".join(table_name(app, service) for service in SERVICES)
                opinions += warn(f"the app {app} has no push table: {wanted}")
        for table in found:
            if not table.readable:
                grant = f"GRANT SELECT ON {identifier(table.name)} TO {identifier(self._user)}"
                opinions += fault(f"{self._user} may not read {table.name}", psql(self._url, grant))
        return opinions or well(f"{len(found)} push tables of {len(apps)} apps can be read")

    async def check_columns(self) -> Opinions:
        """Every push table has the columns that a push needs."""
        _, found = await self._find_tables()
        opinions: list[Opinion] = []
        for table in found:
            if table.missing:
                added = [f"ADD COLUMN {name} {_COLUMN_TYPES.get(name, 'text')}" for name in table.missing]
                said = f"{_name(table)} lacks {', '.join(table.missing)}"
                opinions += fault(said, self._alter(table, ", ".join(added)))
            if table.key_type:
                said = f"seq_id of {_name(table)} is no integer but {table.key_type}"
                change = "ALTER COLUMN seq_id TYPE bigint USING seq_id::bigint"
                opinions += fault(said, self._alter(table, change))
        return opinions or well("every push table has the columns that a push needs")

    async def check_indexes(self) -> Opinions:
        """Every push table has an index on seq_id and one on user_id."""
        _, found = await self._find_tables()
        opinions: list[Opinion] = []
        for table in found:
            # PostgreSQL cannot index a partitioned table concurrently.
            create = "CREATE INDEX" if table.kind == "p" else "CREATE INDEX CONCURRENTLY"
            for column in table.unindexed:
                statement = f"{create} ON {identifier(table.name)} ({column})"
                said = f"{table.name} has no index that begins with {column}: it is read as a whole, again and again"
                opinions += warn(said, psql(self._url, statement))
        elsewhere = [
            f"; {table.name} is a {_KINDS[table.kind]}: index seq_id and user_id in the table that it reads"
            for table in found
            if table.kind in "vf"
        ]
        return opinions or well(f"every push table has an index on seq_id and one on user_id{''.join(elsewhere)}")

    async def check_statistics(self) -> Opinions:
        """Every push table is analysed."""
        _, found = await self._find_tables()
        opinions: list[Opinion] = []
        for table in found:
            if not table.analysed:
                said = f"{table.name} was never analysed: the planner guesses"
                opinions += warn(said, psql(self._url, f"ANALYZE {identifier(table.name)}"))
        return opinions or well("every push table is analysed")

    async def _find_tables(self) -> tuple[Sequence[str], Sequence[FoundTable]]:
        """The first apps, and the push tables that they have."""
        apps = [app.name for app in await self._store.apps.page(limit=MOST_APPS)]
        names = dict.fromkeys(table_name(app, service) for app in apps for service in SERVICES)
        return apps, await self._inspection.find_tables(list(names))

    def _alter(self, table: FoundTable, change: str) -> str:
        """The command that changes a table; none for a view, whose query its owner changes."""
        if table.kind in "vm":
            return ""
        return psql(self._url, f"ALTER TABLE {identifier(table.name)} {change}")

    questions = (
        ADDRESS,
        Question(
            "login",
            "PostgreSQL accepts the user and the password of `audience.url`, and has its database.",
            check_login,
            first=True,
        ),
        ROUND_TRIP,
        TLS,
        Question("version", "PostgreSQL is of version 13 or later.", check_version),
        Question(
            "tables",
            f"Each app has a push table for one service at least, and we may read it; to read is enough. (Of the first "
            f"{MOST_APPS} apps.)",
            check_tables,
            needs=(MONGODB,),
        ),
        Question(
            "columns",
            "Each push table has the columns that a push needs (`docs/push-table.md`).",
            check_columns,
            needs=(MONGODB,),
        ),
        Question(
            "indexes",
            "An index begins with `seq_id`: planning walks through the table by it. Another begins with `user_id`, and "
            "finds the users of a file.",
            check_indexes,
            needs=(MONGODB,),
        ),
        Question(
            "statistics",
            "PostgreSQL has statistics of each push table (`ANALYZE`).",
            check_statistics,
            needs=(MONGODB,),
        ),
    )


def _name(table: FoundTable) -> str:
    return f"the {_KINDS[table.kind]} {table.name}" if table.kind in _KINDS else table.name
