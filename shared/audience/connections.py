"""The pool of connections to the push database, and the one place where the driver's errors are translated."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import asyncpg

from shared.domain.errors import Invalid, Unavailable
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context

CONNECT_SECONDS = 5.0
GRACE_SECONDS = 1.0  # the server's own time-out comes first: it ends the statement and leaves the connection usable
IDLE_SECONDS = 300.0
_OWN_FILES = frozenset({"sslrootcert", "sslcert", "sslkey", "sslcrl"})

# SyntaxOrAccessError is the SQLSTATE class of what does not exist or cannot be compared.
NOT_AS_EXPECTED = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)
FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)


class Connections:
    """Runs single statements, each on whichever connection is free; none is opened before it is needed."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", patience: float) -> None:
        self._pool = pool
        self._patience = patience

    @classmethod
    def open(cls, url: str, *, pool_size: int, statement_timeout_seconds: float, tls: TlsSettings = NO_FILES) -> Self:
        """An empty pool that belongs to the running event loop. Raises `Invalid` for files of TLS that cannot be
        used."""
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
                # Another zone, set by the user or the database, would change filters and the texts of instants.
                "timezone": "UTC",
                "statement_timeout": str(round(statement_timeout_seconds * 1000)),
                # A plan for any range and any value is a bad plan for most: ranges and popular values differ widely.
                "plan_cache_mode": "force_custom_plan",
                # Compiling takes longer than these statements run.
                "jit": "off",
            },
        )
        return cls(pool, statement_timeout_seconds + GRACE_SECONDS)

    async def fetch(self, statement: str, *arguments: object) -> list[Any]:
        """All rows of one statement, prepared once for each connection.

        Raises:
            Unavailable: the server cannot be reached, is stopping, or took too long.
            Invalid: the table, a column or a value is not what the statement takes it for.
        """
        with translate_errors():
            pool = await self._pool  # ready with its first use, without a connection; then this costs nothing
            connection = await pool.acquire(timeout=CONNECT_SECONDS + self._patience)
            try:
                return await connection.fetch(statement, *arguments, timeout=self._patience)
            finally:
                # A connection that cannot be given back is thrown away; that must hide neither rows nor a cancellation.
                with suppress(*FAILURES):
                    await pool.release(connection, timeout=GRACE_SECONDS)

    async def close(self) -> None:
        """End the connections, at once if they do not end by themselves."""
        pool = await self._pool
        try:
            with translate_errors():
                await pool.close()
        except Unavailable:
            pool.terminate()


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn the driver's errors into ours."""
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
    """The context for a connection by this URL. Nothing where it does not ask for a verified server, or names files of
    its own: the driver's way then."""
    options = parse_qs(urlsplit(url).query)
    own = options.keys() & _OWN_FILES
    return client_context(tls) if options.get("sslmode") == ["verify-full"] and not own else None


async def _keep(connection: object) -> None:
    """Leave the session of a returned connection as it is. No statement here changes one, and the driver's reset would
    cost a round trip each time."""
