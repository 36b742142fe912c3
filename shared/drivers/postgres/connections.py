"""The pool of connections to the push database, and the only place that translates the driver's errors."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import asyncpg

from shared.core.errors import Invalid, Unavailable
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context

CONNECT_SECONDS = 5.0
GRACE_SECONDS = 1.0  # the server's own time-out comes first: it ends the statement and leaves the connection usable
IDLE_SECONDS = 300.0
_OWN_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl"})

# SyntaxOrAccessError is the SQLSTATE class of missing objects and impossible comparisons.
NOT_AS_EXPECTED = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)
FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Connections:
    """Runs single statements, each on a free connection; connections are opened when needed."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", patience: float) -> None:
        self._pool = pool
        self._patience = patience

    @classmethod
    def open(cls, url: str, *, pool_size: int, statement_timeout_seconds: float, tls: TlsSettings = NO_FILES) -> Self:
        pool = asyncpg.create_pool(
            url,
            ssl=trust_of(url, tls),
            min_size=0,
            max_size=pool_size,
            max_inactive_connection_lifetime=IDLE_SECONDS,
            timeout=CONNECT_SECONDS,
            reset=_keep,
            server_settings={
                "application_name": "carillon",
                "default_transaction_read_only": "on",
                # Another zone, set by the user or the database, would change filters and the texts of times.
                "timezone": "UTC",
                "statement_timeout": str(round(statement_timeout_seconds * 1000)),
                # A generic plan is bad for most statements: ranges and popular values differ widely.
                "plan_cache_mode": "force_custom_plan",
                # Compiling takes longer than these statements run.
                "jit": "off",
            },
        )
        return cls(pool, statement_timeout_seconds + GRACE_SECONDS)

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows of one statement, which each connection prepares once."""
        with translate_errors():
            pool = await self._pool  # the first use prepares it, without a connection; later this costs nothing
            connection = await pool.acquire(timeout=CONNECT_SECONDS + self._patience)
            try:
                return await connection.fetch(statement, *arguments, timeout=self._patience)
            finally:
                # A connection that cannot be given back is dropped; that must hide neither rows nor a cancellation.
                with suppress(*FAILURES):
                    await pool.release(connection, timeout=GRACE_SECONDS)

    async def close(self) -> None:
        pool = await self._pool
        try:
            with translate_errors():
                await pool.close()
        except Unavailable:
            pool.terminate()


@contextmanager
def translate_errors() -> Iterator[None]:
    try:
        yield
    except asyncpg.InsufficientPrivilegeError as error:
        raise Unavailable(f"the push database denies access: {error}", server="audience") from error
    except NOT_AS_EXPECTED as error:
        raise Invalid(f"the push database cannot answer this: {error}", field="filters") from error
    except FAILURES as error:
        reason = str(error) or type(error).__name__
        raise Unavailable(f"the push database does not answer: {reason}", server="audience") from error


def trust_of(url: str, tls: TlsSettings) -> ssl.SSLContext | None:
    """The TLS context for this URL. `None` if the URL asks for no verified server or names its own files: the driver
    then decides."""
    options = parse_qs(urlsplit(url).query)
    own = options.keys() & _OWN_FILES
    return client_context(tls) if options.get("sslmode") == ["verify-full"] and not own else None


async def _keep(connection: object) -> None:
    """Keep the session of a returned connection: no statement here changes one, and the driver's reset costs a round
    trip."""
