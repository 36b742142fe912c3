"""Marathon's database: the rows that an import reads, and the statements that read them."""

# ruff: noqa: S608 - as the docstring says

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias, TypeVar

import asyncpg
import msgspec
from msgspec import Struct

from shared.core.errors import Invalid, Unavailable
from shared.drivers.postgres.connections import trust_of
from shared.runtime.server_settings import NO_FILES, TlsSettings

__all__ = ["MAX_JSON_BYTES", "PAGE", "AppRow", "JobRow", "Marathon", "Row", "TemplateRow", "UserRow", "open_source"]


class Row(Struct, frozen=True, kw_only=True):
    """The columns of every table."""

    id: str
    created_by: str
    created_at: int
    updated_at: int


class AppRow(Row, frozen=True, kw_only=True):
    name: str
    bundle_id: str


class UserRow(Row, frozen=True, kw_only=True):
    email: str
    is_admin: bool
    allowed_apps: tuple[str, ...] | None


class TemplateRow(Row, frozen=True, kw_only=True):
    app_id: str
    name: str
    locale: str
    body: str | None
    defaults: str | None


class JobRow(Row, frozen=True, kw_only=True):
    """A row of `jobs`. `status` is empty while a job waits or runs and after it has completed; only `completed_at`
    distinguishes these."""

    app_id: str
    job_group_id: str
    template_name: str
    service: str
    status: str
    localized: bool
    past_time_strategy: str
    csv_path: str
    control_group: float
    control_group_csv_path: str
    total_batches: int
    completed_batches: int
    total_tokens: int
    completed_tokens: int
    starts_at: int
    expires_at: int
    completed_at: int
    context: str | None
    filters: str | None
    metadata: str | None
    feedbacks: str | None


MAX_JSON_BYTES = 2**20
"""The most JSON of one row: the limit of one request to Carillon's API."""
_NO_UUID = "00000000-0000-0000-0000-000000000000"
_ALL = ("id", "created_by", "created_at", "updated_at")
_JOB_JSON = ("context", "filters", "metadata", "feedbacks")
_JOB_TEXTS = ("service", "status", "past_time_strategy", "csv_path", "control_group_csv_path")
_JOB_NUMBERS = (
    "total_batches",
    "completed_batches",
    "total_tokens",
    "completed_tokens",
    "starts_at",
    "expires_at",
    "completed_at",
)
NEEDED: dict[str, frozenset[str]] = {
    "apps": frozenset({*_ALL, "name", "bundle_id"}),
    "users": frozenset({*_ALL, "email", "is_admin", "allowed_apps"}),
    "templates": frozenset({*_ALL, "app_id", "name", "locale", "body", "defaults"}),
    "jobs": frozenset(
        {*_ALL, "app_id", "job_group_id", "template_name", "localized", "control_group"}
        | {*_JOB_JSON, *_JOB_TEXTS, *_JOB_NUMBERS}
    ),
}
"""The tables, and the columns of each that the statements use."""
COLUMNS = """
SELECT c.relname::text AS relation, array_agg(a.attname::text) AS columns
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
WHERE c.relname = ANY($1::text[]) AND c.relkind IN ('r', 'p', 'v') AND pg_catalog.pg_table_is_visible(c.oid)
      AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY c.relname"""
COUNTS = "SELECT " + ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in NEEDED)
_COMMON = """id::text, coalesce(created_by, '') AS created_by,
       coalesce(created_at, 0)::bigint AS created_at, coalesce(updated_at, 0)::bigint AS updated_at"""


def _json(columns: Sequence[str]) -> str:
    """The columns as JSON text, each NULL if they are too large together."""
    texts = {column: f"coalesce({column}::text, '{{}}')" for column in columns}
    size = " + ".join(f"octet_length({text})" for text in texts.values())
    return ", ".join(
        f"CASE WHEN {size} <= {MAX_JSON_BYTES} THEN {text} END AS {column}" for column, text in texts.items()
    )


def _texts(columns: Sequence[str]) -> str:
    return ", ".join(f"coalesce({column}, '') AS {column}" for column in columns)


def _numbers(columns: Sequence[str]) -> str:
    return ", ".join(f"coalesce({column}, 0)::bigint AS {column}" for column in columns)


APPS = f"SELECT {_COMMON}, name, bundle_id FROM apps ORDER BY id"
USERS = f"SELECT {_COMMON}, email, is_admin, allowed_apps::text[] AS allowed_apps FROM users ORDER BY id"
TEMPLATES = f"""
SELECT {_COMMON}, app_id::text, name, locale, {_json(("body", "defaults"))}
FROM templates ORDER BY id"""
# As text, a share of type `real` is the number that was meant: 0.2, not 0.20000000298.
JOBS = f"""
SELECT {_COMMON}, app_id::text, coalesce(job_group_id::text, '{_NO_UUID}') AS job_group_id, template_name,
       coalesce(localized, false) AS localized, coalesce(control_group, 0)::text::float8 AS control_group,
       {_texts(_JOB_TEXTS)}, {_numbers(_JOB_NUMBERS)}, {_json(_JOB_JSON)}
FROM jobs ORDER BY id"""
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
            counted = await self._connection.fetchrow(COUNTS, timeout=STATEMENT_SECONDS)
        return dict(counted or {})

    def apps(self) -> AsyncIterator[list[AppRow]]:
        """All apps in pages, ordered by id. The other tables come likewise."""
        return self._pages(APPS, AppRow)

    def users(self) -> AsyncIterator[list[UserRow]]:
        return self._pages(USERS, UserRow)

    def templates(self) -> AsyncIterator[list[TemplateRow]]:
        return self._pages(TEMPLATES, TemplateRow)

    def jobs(self) -> AsyncIterator[list[JobRow]]:
        return self._pages(JOBS, JobRow)

    async def check(self) -> None:
        """Raise `Invalid` unless this is a Marathon database with all tables and columns of its last release."""
        with _translate_errors():
            found = await self._connection.fetch(COLUMNS, list(NEEDED), timeout=STATEMENT_SECONDS)
        present: dict[str, set[str]] = {row["relation"]: set(row["columns"]) for row in found}
        for table, columns in NEEDED.items():
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
    certificates if the URL demands a verified server and names no files."""
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
