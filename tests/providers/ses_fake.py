"""Amazon SES over SMTP as a process: what it takes, whom it lets in, and its words, as its documentation has them.

A rule's status and text are the reply to the end of the data.
"""

import asyncio
import re
from email import message_from_bytes

from aiosmtpd.smtp import Envelope, Session

from tests.providers.smtp_fake import Handler, Server, serve

VERIFIED = "example.com"
CONFIGURATION_SET = "carillon-events"

_ADDRESS = re.compile(r"[!-~]+@[a-z0-9-]+(\.[a-z0-9-]+)+", re.IGNORECASE)
_TAGS = re.compile(r"[A-Za-z0-9_-]{1,256}=[A-Za-z0-9_-]{1,256}(, *[A-Za-z0-9_-]{1,256}=[A-Za-z0-9_-]{1,256})*")


class SesServer(Server):
    """One connection; nobody sends without a login."""

    auth_required = True

    def refusal(self, words: str) -> str:
        return words or "Authentication Credentials Invalid"


class SesHandler(Handler):
    """What each command is answered with."""

    def __init__(self) -> None:
        self._taken = 0

    async def handle_RCPT(  # noqa: N802 - aiosmtpd finds it by its name
        self, server: Server, session: Session, envelope: Envelope, address: str, _: list[str]
    ) -> str:
        if not _ADDRESS.fullmatch(address):
            return "501 Invalid RCPT TO address provided"
        envelope.rcpt_tos.append(address)
        return "250 Ok"

    def reply(self, server: Server, envelope: Envelope) -> str:
        if server.rule.status >= 400:
            return f"{server.rule.status} {server.rule.text}"
        return self._objection(server, envelope) or self._accept()

    def _objection(self, server: Server, envelope: Envelope) -> str | None:
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content)
        if not str(envelope.mail_from).endswith(f"@{VERIFIED}"):
            return (
                "554 Message rejected: Email address is not verified. The following identities failed the check in "
                f"region EU-WEST-1: {envelope.mail_from}"
            )
        if not _TAGS.fullmatch(mail["X-SES-MESSAGE-TAGS"] or "a=b"):
            return "554 Transaction failed: Invalid message tag"
        if (chosen := mail["X-SES-CONFIGURATION-SET"]) not in {None, CONFIGURATION_SET}:
            return f"554 Message rejected: Configuration set {chosen} does not exist."
        return None

    def _accept(self) -> str:
        self._taken += 1
        return f"250 Ok 0102018f{self._taken:08x}-6b1d0f6e-5a52-4a6f-9a55-2d1ce6b3c1a2-000000"


if __name__ == "__main__":
    handler = SesHandler()
    asyncio.run(serve(lambda notes: SesServer(notes, handler)))
