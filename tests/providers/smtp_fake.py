"""A mail server (aiosmtpd) as a process: it notes arrivals by its own clock and answers as told.

A rule's status and text are the reply to the recipient, or to the login where it is 535; the rest of it is about the
end of the data.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

from tests.providers.notes import Notes, obey, reset
from tests.providers.rules import Arrived, Counts, Cut, Rule

LOGIN_REFUSED = 535
PASSWORD = "p4ssw0rd-of-smtp"


class Server(SMTP):
    """One connection."""

    auth_required = False

    def __init__(self, notes: Notes, handler: "Handler") -> None:
        self.notes = notes
        self.rule = Rule()
        self.began = (0, 0.0)
        self.peer = 0
        self._counts = Counts()
        self._messages_begun = False
        super().__init__(
            handler,
            enable_SMTPUTF8=False,
            hostname="mx.example",
            authenticator=self.judge,
            auth_require_tls=False,
            auth_required=self.auth_required,
        )

    def connection_made(self, transport: Any) -> None:
        self._counts = self.notes.connect()
        self.peer = self._counts.connections
        super().connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._counts.ended += 1
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        if data.upper().startswith(b"MAIL"):
            self._messages_begun = True
            self.began = (time.monotonic_ns(), time.time())
            self.rule = self.notes.rule()
        if self._messages_begun:
            self.notes.counts.bytes += len(data)
        if self._messages_begun and self.rule.cut is Cut.BEGINNING:
            reset(self.transport)
        else:
            super().data_received(data)

    def judge(self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, login: Any) -> AuthResult:
        """Whether this is our user."""
        assert isinstance(login, LoginPassword)
        refused = self.notes.always.status == LOGIN_REFUSED or login.password != PASSWORD.encode()
        message = f"{LOGIN_REFUSED} {self.refusal(self.notes.always.text)}" if refused else None
        return AuthResult(success=not refused, handled=False, message=message)

    def refusal(self, words: str) -> str:
        """What a stranger is told."""
        return f"5.7.8 {words}"


class Handler:
    """What each command is answered with."""

    async def handle_RCPT(  # noqa: N802 - aiosmtpd finds it by its name
        self, server: Server, session: Session, envelope: Envelope, address: str, _: list[str]
    ) -> str:
        if server.rule.status >= 400:
            return f"{server.rule.status} {server.rule.text}"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(  # noqa: N802 - aiosmtpd finds it by its name
        self, server: Server, session: Session, envelope: Envelope
    ) -> str:
        rule, (began, at) = server.rule, server.began
        assert isinstance(envelope.content, bytes)
        headers = {"mail-from": str(envelope.mail_from), "rcpt-to": str(envelope.rcpt_tos[0])}
        arrived = Arrived(began, at, server.peer, "", headers, envelope.content.decode("latin-1"))
        server.notes.arrived.append(arrived)
        server.notes.begin()
        await asyncio.sleep(rule.delay_seconds)
        if rule.hang:
            await asyncio.Event().wait()
        server.notes.end()
        transport: Any = server.transport
        if rule.cut is Cut.CALL:
            reset(transport)
        elif rule.cut is Cut.ANSWER:
            transport.write(b"250 2.0.0 O")
            await asyncio.sleep(0.02)
            reset(transport)
        elif rule.close:
            transport.write(self.reply(server, envelope).encode() + b"\r\n")
            transport.close()
        return self.reply(server, envelope)

    def reply(self, server: Server, envelope: Envelope) -> str:
        """What the end of the data is answered with."""
        return "250 2.0.0 Ok: queued as 4F2B1"


async def serve(make_server: Callable[[Notes], Server]) -> None:
    """Take mails until nobody gives orders any more."""
    notes = Notes()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: make_server(notes), "127.0.0.1", 0, backlog=1_024)
    await obey(notes, server.sockets[0].getsockname()[1])


if __name__ == "__main__":
    asyncio.run(serve(lambda notes: Server(notes, Handler())))
