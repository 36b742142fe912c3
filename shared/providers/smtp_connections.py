"""The connections of one account to one mail server: opened when needed, greeted, logged in, and kept.

A connection that was used within the last seconds is lent as it is. One that was idle for longer, or whose last mail
was refused, is checked first. A server may end a connection between mails, or by a 421 at any command (RFC 5321, 3.8).
If the connection has had a mail before, that is a `Goodbye`: it says nothing about the next mail, which may go by a new
connection at once. The sender limits the number of connections.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic

import aiosmtplib
from msgspec import Struct

from shared.drivers.http.departure import is_closed_by_peer
from shared.drivers.http.guard import Guard
from shared.providers.calls import connect_socket

FRESH_SECONDS = 5.0
IDLE_SECONDS = 60.0
MAILS = 100  # on one connection: many servers end it at about this number
QUIT_SECONDS = 1.0

_CLOSING = 421
_GO_ON = 354
_TAKEN = range(200, 300)
_LINE_END = re.compile(rb"\r\n|\r|\n")
_DOT = re.compile(rb"^\.", re.MULTILINE)

_FAILURES = (aiosmtplib.SMTPException, OSError, TimeoutError)


class SmtpTarget(Struct, frozen=True):
    """The server and the login. `start_tls` is `None` if STARTTLS is used when the server has it."""

    host: str
    port: int
    implicit_tls: bool
    start_tls: bool | None
    user: str
    password: str

    def __repr__(self) -> str:
        return f"SmtpTarget({self.host!r}, {self.port})"


class Goodbye(Exception):
    """The server ended a connection that has had mails before, and did not take the last one."""


class SmtpConnection:
    """A connection that is ready for a mail. `_clean` is true until a mail begins, and again after it ends well."""

    def __init__(self, client: aiosmtplib.SMTP) -> None:
        self._client = client
        self._clean = True
        self._handed_over = False
        self._mails = 0
        self._used = monotonic()

    def begin(self) -> aiosmtplib.SMTP:
        self._clean = self._handed_over = False
        self._mails += 1
        return self._client

    async def begin_data(self) -> None:
        reply = await self._client.execute_command(b"DATA")
        if reply.code != _GO_ON:
            raise aiosmtplib.SMTPDataError(reply.code, reply.message)

    async def hand_over(self, mail: bytes) -> aiosmtplib.SMTPResponse:
        """Send the mail after DATA; return the server's confirmation. The driver sends both in one call, and does not
        say which of them a reply is about. Raises `aiosmtplib.SMTPResponseException` if the server answers otherwise.
        """
        protocol = self._client.protocol
        if protocol is None:
            raise aiosmtplib.SMTPServerDisconnected("Connection lost")
        self._handed_over = True
        protocol.write(_as_data(mail))
        reply = await protocol.read_response()
        if reply.code not in _TAKEN:
            raise aiosmtplib.SMTPDataError(reply.code, reply.message)
        return reply

    def end(self) -> None:
        self._clean = True
        self._used = monotonic()

    def is_goodbye(self, error: Exception) -> bool:
        """Whether the connection has had mails before this one, which was certainly not taken."""
        if isinstance(error, aiosmtplib.SMTPResponseException):
            lost = error.code == _CLOSING
        else:
            lost = isinstance(error, ConnectionError) and not self._handed_over
        return lost and self._mails > 1

    @property
    def keepable(self) -> bool:
        return self._client.is_connected and self._mails < MAILS

    @property
    def old(self) -> bool:
        return monotonic() - self._used > IDLE_SECONDS

    async def renew(self) -> bool:
        """Make the connection ready for another mail; return whether that worked."""
        if self.old or not self.keepable or is_closed_by_peer(self._client.transport):
            return False
        if self._clean and monotonic() - self._used < FRESH_SECONDS:
            return True
        with suppress(*_FAILURES):
            await self._client.rset()
            self.end()
            return True
        return False

    def cut(self) -> None:
        self._client.close()

    async def quit(self) -> None:
        """End the connection politely, within `QUIT_SECONDS`."""
        with suppress(*_FAILURES):
            await self._client.quit(timeout=QUIT_SECONDS)
        self._client.close()


class SmtpConnections:
    """Lends each connection to one mail at a time."""

    def __init__(self, target: SmtpTarget, guard: Guard, trust: ssl.SSLContext, timeout_seconds: float) -> None:
        self._target = target
        self._guard = guard
        self._trust = trust
        self._timeout_seconds = timeout_seconds
        self._idle: list[SmtpConnection] = []
        self._closed = False

    @asynccontextmanager
    async def lend(self, *, new: bool = False) -> AsyncIterator[SmtpConnection]:
        """Lend a connection for one mail. Raises `Goodbye` if an earlier connection ended and did not take the mail."""
        connection = SmtpConnection(await self._connect()) if new else await self._take()
        try:
            yield connection
        except (asyncio.CancelledError, TimeoutError):
            connection.cut()
            raise
        except (aiosmtplib.SMTPException, OSError) as error:
            if connection.is_goodbye(error):
                connection.cut()
                raise Goodbye from None
            raise
        finally:
            self._take_back(connection)

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(connection.quit() for connection in idle))

    async def _take(self) -> SmtpConnection:
        while self._idle:
            connection = self._idle.pop()
            if await connection.renew():
                return connection
            connection.cut()
        return SmtpConnection(await self._connect())

    def _take_back(self, connection: SmtpConnection) -> None:
        while self._idle and self._idle[0].old:
            self._idle.pop(0).cut()
        if connection.keepable and not self._closed:
            self._idle.append(connection)
        else:
            connection.cut()

    async def _connect(self) -> aiosmtplib.SMTP:
        target = self._target
        client = aiosmtplib.SMTP(
            hostname=target.host,
            sock=await connect_socket(target.host, target.port, self._guard),
            username=target.user or None,
            password=target.password or None,
            local_hostname=_own_name(),
            timeout=self._timeout_seconds,
            use_tls=target.implicit_tls,
            start_tls=target.start_tls,
            tls_context=self._trust,
        )
        await client.connect()
        try:
            if client.is_ehlo_or_helo_needed:
                await client.ehlo()
        except BaseException:
            client.close()
            raise
        return client


def _as_data(mail: bytes) -> bytes:
    """The mail as it follows `DATA`: a dot alone on a line ends it, so dots at the beginning of lines are doubled."""
    data = _DOT.sub(b"..", _LINE_END.sub(b"\r\n", mail))
    return data + (b".\r\n" if data.endswith(b"\r\n") else b"\r\n.\r\n")


def _own_name() -> str:
    """The name in the greeting: a full host name or, as RFC 5321 says for hosts without one, an address."""
    name = socket.gethostname()
    return name if "." in name else "[127.0.0.1]"
