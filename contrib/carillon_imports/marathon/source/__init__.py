"""A Marathon database in PostgreSQL as plain rows, for `carillon import marathon`.

It is separate from `shared.audience`, because it is another database with another purpose: the command line names it,
it is read once from end to end, and its tables belong to Marathon.

Guarantees:

- **One moment.** One read-only transaction sees all rows as they were at `open_source`.
- **Bounded memory.** Rows come in pages of `PAGE`, by a cursor on the server. JSON of a row beyond `MAX_JSON_BYTES` is
  not read, and is `None`.
- **No judgement.** NULL becomes 0 or `""`, as in Marathon's API, and JSON stays text. The importer decides whether a
  row can be imported.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias, TypeVar

import asyncpg
import msgspec

from carillon_imports.marathon.source import statements
from carillon_imports.marathon.source.rows import AppRow, JobRow, Row, TemplateRow, UserRow
from carillon_imports.marathon.source.statements import MAX_JSON_BYTES
from shared.audience.connections import trust_of
from shared.domain.errors import Invalid, Unavailable
from shared.runtime.server_settings import NO_FILES, TlsSettings

__all__ = ["MAX_JSON_BYTES", "PAGE", "AppRow", "JobRow", "Marathon", "Row", "TemplateRow", "UserRow", "open_source"]

PAGE = 100
CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 120.0  # the first page may have to sort a large table
GRACE_SECONDS = 5.0

_Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_SCHEMES = ("postgresql://", "postgres://")
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidPasswordError)
_FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

T = TypeVar("T", bound=Row)


class Marathon:
    """One Marathon database at one moment. Every read raises `Unavailable` if the server does not answer."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def counts(self) -> dict[str, int]:
        with _translate_errors():
            counted = await self._connection.fetchrow(statements.COUNTS, timeout=STATEMENT_SECONDS)
        return dict(counted or {})

    def apps(self) -> AsyncIterator[list[AppRow]]:
        """All apps in pages, ordered by id. The other tables come likewise."""
        return self._pages(statements.APPS, AppRow)

    def users(self) -> AsyncIterator[list[UserRow]]:
        return self._pages(statements.USERS, UserRow)

    def templates(self) -> AsyncIterator[list[TemplateRow]]:
        return self._pages(statements.TEMPLATES, TemplateRow)

    def jobs(self) -> AsyncIterator[list[JobRow]]:
        return self._pages(statements.JOBS, JobRow)

    async def check(self) -> None:
        """Raise `Invalid` unless this is a Marathon database with all tables and columns of its last release."""
        with _translate_errors():
            found = await self._connection.fetch(statements.COLUMNS, list(statements.NEEDED), timeout=STATEMENT_SECONDS)
        present: dict[str, set[str]] = {row["relation"]: set(row["columns"]) for row in found}
        for table, columns in statements.NEEDED.items():
            if table not in present:
                raise Invalid(f'this is no Marathon database: it has no table "{table}"', field="--from")
            if missing := sorted(columns - present[table]):
                lacks = f'its table "{table}" has no {", ".join(missing)}'
                raise Invalid(f"{lacks}: bring it up to date with Marathon's own migrations", field="--from")

    async def _pages(self, statement: str, kind: type[T]) -> AsyncIterator[list[T]]:
        with _translate_errors():
            cursor = await self._connection.cursor(statement, timeout=STATEMENT_SECONDS)
        while True:
            with _translate_errors():
                records = await cursor.fetch(PAGE, timeout=STATEMENT_SECONDS)
            if not records:
                return
            yield [msgspec.convert(dict(record), kind) for record in records]


@asynccontextmanager
async def open_source(url: str, tls: TlsSettings = NO_FILES) -> AsyncIterator[Marathon]:
    """The Marathon database at a `postgresql://` URL, until the end of the block. `tls` contains the trusted
    certificates if the URL demands a verified server and names no files.

    Raises:
        Invalid: the URL cannot be read, the server refuses the user, or this is no Marathon database.
    """
    connection = await _connect(url, tls)
    try:
        with _translate_errors():
            transaction = connection.transaction(isolation="repeatable_read", readonly=True)
            await transaction.start()
        marathon = Marathon(connection)
        await marathon.check()
        yield marathon
    finally:
        # Nothing was written, so any end of the transaction will do.
        with suppress(*_FAILURES):
            await connection.close(timeout=GRACE_SECONDS)


async def _connect(url: str, tls: TlsSettings) -> _Connection:
    if not url.startswith(_SCHEMES):
        raise Invalid("not a postgresql:// URL", field="--from")
    try:
        with _translate_errors():
            return await asyncpg.connect(
                url,
                ssl=trust_of(url, tls),
                timeout=CONNECT_SECONDS,
                server_settings={
                    "application_name": "carillon import",
                    "statement_timeout": str(round(STATEMENT_SECONDS * 1000)),
                    # Between two pages the other store is written, however long that takes.
                    "idle_in_transaction_session_timeout": "0",
                },
            )
    except ValueError as error:
        raise Invalid(f"not a postgresql:// URL: {error}", field="--from") from error


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except asyncpg.ClientConfigurationError as error:
        raise Invalid(f"not a postgresql:// URL: {error}", field="--from") from error
    except _REFUSED as error:
        raise Invalid(f"the Marathon database refuses this user: {error}", field="--from") from error
    except asyncpg.InvalidCatalogNameError as error:
        raise Invalid(f"there is no such Marathon database: {error}", field="--from") from error
    except asyncpg.InsufficientPrivilegeError as error:
        raise Invalid(f"this user may not read the Marathon database: {error}", field="--from") from error
    except _FAILURES as error:
        raise Unavailable(f"the Marathon database does not answer: {str(error) or type(error).__name__}") from error
