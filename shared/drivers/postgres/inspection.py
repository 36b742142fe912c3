"""Read-only questions about PostgreSQL and its push tables, for `carillon doctor` and the API."""

from collections.abc import Sequence
from typing import Any

import asyncpg
from msgspec import Struct

from shared.core.errors import Denied, NotFound, Unavailable
from shared.drivers.postgres import statements
from shared.drivers.postgres.connections import Connections
from shared.drivers.postgres.statements import DESCRIBE, DETAILS, KEY, KEY_TYPES, USER

_SERVER = "SELECT current_setting('server_version') AS version, current_setting('server_version_num')::int AS number"

_TABLES = """
SELECT given.name, given.quoted, has_table_privilege(c.oid, 'SELECT') AS readable,
       has_schema_privilege(c.relnamespace, 'USAGE') AS open, c.relkind::text AS kind
FROM unnest($1::text[], $2::text[]) AS given(name, quoted)
JOIN pg_catalog.pg_class c ON c.oid = to_regclass(given.quoted)
ORDER BY given.name
"""


class FoundTable(Struct, frozen=True):
    """A push table, and its missing columns and indexes. `kind` is PostgreSQL's letter, such as `v` for a view.
    `key_type` is the type of `seq_id` if it is no integer."""

    name: str
    readable: bool = True
    kind: str = "r"
    missing: Sequence[str] = ()
    key_type: str = ""
    unindexed: Sequence[str] = ()


class AudienceInspection:
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def read_version(self) -> tuple[str, int]:
        try:
            [row] = await self._connections.fetch(_SERVER)
        except Unavailable as error:
            cause = error.__cause__
            if isinstance(cause, asyncpg.InvalidAuthorizationSpecificationError):  # a wrong password is a kind of it
                raise Denied(f"PostgreSQL does not accept the login: {cause}") from error
            if isinstance(cause, asyncpg.InvalidCatalogNameError):
                raise NotFound(f"there is no such database: {cause}") from error
            raise
        return row["version"], row["number"]

    async def find_tables(self, names: Sequence[str]) -> list[FoundTable]:
        quoted = [statements.quote_name(name) for name in names]
        found = await self._connections.fetch(_TABLES, list(names), quoted)
        return [await self._describe(row) for row in found]

    async def _describe(self, table: Any) -> FoundTable:
        columns = {row["name"]: row for row in await self._connections.fetch(DESCRIBE, table["quoted"])}
        key_type = columns[KEY]["type"] if KEY in columns else ""
        return FoundTable(
            name=table["name"],
            readable=table["readable"] and table["open"],
            kind=table["kind"],
            missing=[name for name in (KEY, *DETAILS) if name not in columns],
            key_type="" if key_type in KEY_TYPES else key_type,
            unindexed=[name for name in (KEY, USER) if name in columns and not columns[name]["indexed"]],
        )
