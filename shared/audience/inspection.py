"""The questions of `carillon doctor` to PostgreSQL. Every statement reads."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self

import asyncpg
from msgspec import Struct

from shared.audience import statements
from shared.audience.connections import Connections
from shared.audience.tables import DESCRIBE, DETAILS, KEY, KEY_TYPES, USER
from shared.domain.errors import Denied, NotFound, Unavailable
from shared.runtime.server_settings import NO_FILES, TlsSettings

_POOL_SIZE = 3
_SERVER = "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number"

# Without statistics of any column the planner guesses. An empty table needs none.
_TABLES = """
SELECT given.name, given.quoted, c.relkind::text AS kind, has_table_privilege(c.oid, 'SELECT') AS readable,
       has_schema_privilege(c.relnamespace, 'USAGE') AS open,
       pg_relation_size(c.oid) = 0
         OR EXISTS (SELECT FROM pg_catalog.pg_stats s WHERE s.schemaname = n.nspname AND s.tablename = c.relname)
         OR NOT has_table_privilege(c.oid, 'SELECT') AS analysed
FROM unnest($1::text[], $2::text[]) AS given(name, quoted)
JOIN pg_catalog.pg_class c ON c.oid = to_regclass(given.quoted)
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
ORDER BY given.name
"""


class DatabaseVersion(Struct, frozen=True):
    """The version of the server, as it says it and as a number (150004)."""

    text: str
    number: int


class FoundTable(Struct, frozen=True):
    """A push table, and what it lacks. `kind` is PostgreSQL's `relkind`. `key_type` is that of `seq_id` if none that
    serves."""

    name: str
    kind: str
    readable: bool
    analysed: bool
    missing: Sequence[str]
    key_type: str
    unindexed: Sequence[str]


class AudienceInspection:
    """Questions to one database. All raise `Unavailable`; as `Denied` where it does not accept our login."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @classmethod
    def open(cls, url: str, *, statement_timeout_seconds: float, tls: TlsSettings = NO_FILES) -> Self:
        """Ready to ask the server at `url`, which need not run yet. Raises `Invalid` for files of TLS that cannot be
        used."""
        return cls(
            Connections.open(url, pool_size=_POOL_SIZE, statement_timeout_seconds=statement_timeout_seconds, tls=tls)
        )

    async def read_version(self) -> DatabaseVersion:
        """The version of the server; with it, login and database are known to be good.

        Raises `Denied` for a login that is refused, `NotFound` for a database that is missing.
        """
        with _explain():
            [row] = await self._connections.fetch(_SERVER)
        return DatabaseVersion(row["version"], row["number"])

    async def ping(self) -> None:
        """Ask for nothing."""
        await self._connections.fetch(statements.PING)

    async def find_tables(self, names: Sequence[str]) -> list[FoundTable]:
        """Those of these tables that there are."""
        quoted = [statements.quote_name(name) for name in names]
        found = await self._connections.fetch(_TABLES, list(names), quoted)
        return [await self._describe(row) for row in found]

    async def close(self) -> None:
        """End the connections."""
        await self._connections.close()

    async def _describe(self, table: Any) -> FoundTable:
        columns = {row["name"]: row for row in await self._connections.fetch(DESCRIBE, table["quoted"])}
        key_type = columns[KEY]["type"] if KEY in columns else ""
        return FoundTable(
            name=table["name"],
            kind=table["kind"],
            readable=table["readable"] and table["open"],
            analysed=table["analysed"],
            missing=[name for name in (KEY, *DETAILS) if name not in columns],
            key_type="" if key_type in KEY_TYPES else key_type,
            unindexed=[name for name in (KEY, USER) if name in columns and not columns[name]["indexed"]],
        )


@contextmanager
def _explain() -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        match error.__cause__:
            case asyncpg.InvalidAuthorizationSpecificationError():  # a wrong password is a kind of it
                raise Denied(f"PostgreSQL does not accept the login: {error.__cause__}") from error
            case asyncpg.InvalidCatalogNameError():
                raise NotFound(f"there is no such database: {error.__cause__}") from error
            case _:
                raise
