"""Mail: plain text to a few people, by whichever server the deployment has.

Guarantees of every implementation:

- `send` returns when the server has taken the mail for at least one of its recipients. Those whom it refuses, and those
  whose address it could not be told, are left out with a warning in the log, which names no address in full.
- It ends by its deadline, connecting and all. When it raises `Unavailable`, the mail may have been sent all the same:
  its Message-ID is the same the next time, so that the repeat can be recognised.
- Nothing of a `Letter` or a `MailSender` can end a line of a mail's head: neither can be made with such a thing.
- No error shows a password, a key or an address in full.

An address is told in ASCII, its domain as DNS has it (xn--): hardly a server takes names beyond ASCII before the @.
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
    """Whom the mails come from. Raises `Invalid` when it is made of what cannot stand in a mail's head."""

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
    """Whether there is one at all."""

    async def send(self, letter: Letter) -> None:
        """Have the mail sent.

        Raises:
            Unavailable: not now: no connection, no answer in time, or the server asks to try again later.
            Unauthorized: the server does not accept our login or key.
            Invalid: the server refuses the mail, or all its recipients, for good.
        """

    async def verify(self) -> None:
        """Find out whether the server takes our login or key, without sending anything. Raises as `send` does."""

    async def close(self) -> None:
        """Let go of whatever is held open."""


def tellable(letter: Letter) -> tuple[str, ...]:
    """The recipients as a server is told of them. Raises `Invalid` when there are none left."""
    spelled = {address: address_in_ascii(address) for address in letter.to}
    if left_out := [mask_addresses(address) for address, known in spelled.items() if known is None]:
        log.warning("recipients left out, their addresses cannot be told", letter_id=letter.id, recipients=left_out)
    recipients = tuple(dict.fromkeys(known for known in spelled.values() if known is not None))
    if not recipients:
        raise Invalid("no recipient has an address in ASCII", field="to")
    return recipients


def mask_addresses(text: str) -> str:
    """The beginning of the text with no more of a mailbox's name than its first character: `a…@example.com`."""
    # Cut first: looking for addresses takes the square of the length.
    return _ADDRESS.sub(r"\1…@\2", printable(text[:_EXCERPT_CHARACTERS]))
