"""Mail: plain text to a few people, by the deployment's mail server.

Guarantees of every implementation:

- `send` returns when the server has taken the mail for at least one recipient. Refused recipients, and those whose
  address has no ASCII form, are left out with a warning in the log, which shows no whole address.
- It ends by its deadline, including the connection. After `Unavailable`, the mail may have been sent: the next attempt
  has the same Message-ID, so that the repetition can be recognised.
- No part of a `Letter` or a `MailSender` can end a line of a mail's head: neither can be made with such a text.
- No error shows a password, a key or a whole address.

Addresses are written in ASCII, with the domain as in DNS (xn--): hardly any server takes other names before the @.
"""

import re
from typing import Protocol

import structlog
from msgspec import Struct

from shared.domain.errors import Invalid
from shared.domain.jobs.mails import Letter, is_mailbox, printable
from shared.domain.mail_domains import address_in_ascii

__all__ = ["Letter", "Mail", "MailSender", "mask_addresses", "tellable"]

log = structlog.get_logger(__name__)

_EXCERPT_CHARACTERS = 500
_ADDRESS = re.compile(r"([^\s<>@:,;\"'()])[^\s<>@:,;\"()]*@([^\s<>@:,;\"'()]+)")


class MailSender(Struct, frozen=True):
    """The sender of the mails. Raises `Invalid` for texts that a mail's head may not contain."""

    name: str
    address: str

    def __post_init__(self) -> None:
        if printable(self.name) != self.name:
            raise Invalid("a sender's name is one line of printable characters", field="mail.sender_name")
        if not is_mailbox(self.address) or address_in_ascii(self.address) != self.address:
            raise Invalid("a sender needs an address in ASCII, such as name@example.com", field="mail.sender_address")


class Mail(Protocol):
    """A server that takes mails."""

    delivers: bool
    """Whether a mail server is configured."""

    async def send(self, letter: Letter) -> None:
        """Send the mail.

        Raises:
            Unavailable: no connection, no answer in time, or the server asks to try again later.
            Unauthorized: the server does not accept the login or key.
            Invalid: the server refuses the mail, or all its recipients, for good.
        """

    async def verify(self) -> None:
        """Check the login or key without sending anything. Raises as `send` does."""

    async def close(self) -> None: ...


def tellable(letter: Letter) -> tuple[str, ...]:
    """The recipients in ASCII. Raises `Invalid` if none is left."""
    spelled = {address: address_in_ascii(address) for address in letter.to}
    if left_out := [mask_addresses(address) for address, known in spelled.items() if known is None]:
        log.warning("recipients left out, their addresses cannot be told", letter_id=letter.id, recipients=left_out)
    recipients = tuple(dict.fromkeys(known for known in spelled.values() if known is not None))
    if not recipients:
        raise Invalid("no recipient has an address in ASCII", field="to")
    return recipients


def mask_addresses(text: str) -> str:
    """The beginning of the text; of a mailbox's name only the first character: `a…@example.com`."""
    # Cut first: the time to find addresses grows with the square of the length.
    return _ADDRESS.sub(r"\1…@\2", printable(text[:_EXCERPT_CHARACTERS]))
