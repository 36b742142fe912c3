"""The parts that all kinds of mail share: template, content, and checks of senders and addresses."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from shared.core.errors import Invalid
from shared.core.mail import address_in_ascii
from shared.jobs.rules.mails import is_mailbox, printable
from shared.messages.rules.contents import MAIL_RULE, SUBJECT_RULE
from shared.messages.rules.suppressions import URL_FIELD, list_headers
from shared.providers import Content
from shared.providers.base import read_fields

OUR_HEADER = "X-Carillon-Message"
"""The header with Carillon's key, so that a callback or a bounce can name the message."""

# The codes of RFC 3463 and its registry that mean: the recipient's address is wrong or closed.
_DEAD_CODES = frozenset({"5.1.1", "5.1.2", "5.1.3", "5.1.6", "5.1.10", "5.2.1"})
_CODE = re.compile(r"(?<![\d.])[245]\.\d{1,3}\.\d{1,3}(?!\.?\d)")
_DEAD_WORDS = re.compile(
    r"\b(user|recipient|address|mailbox) (is )?(unknown|not found|does not exist|doesn't exist)\b"
    r"|\b(unknown|no such) (user|recipient|address|mailbox)\b",
    re.IGNORECASE,
)
# A server that verifies the sender's address may repeat the answer about that one, code and all. A mailbox that gets
# mail too fast is alive.
_OF_OTHERS = re.compile(
    r"\b(sender|callout|callback|(mail|envelope|header)[ -]?from|return[ -]?(path|address)|reverse[ -]?path)\b"
    r"|\b(at a rate|too (fast|quickly))\b",
    re.IGNORECASE,
)
_URL = re.compile(r"https?://[!-;=?-~]+")  # ASCII, on one line, without angle brackets


class MailTemplate(Struct, frozen=True, forbid_unknown_fields=True):
    subject: str
    text: str = ""
    html: str = ""


class MailContent(Struct, frozen=True):
    """A rendered mail. `headers` go with the recipient's own unsubscribe link, if there is one."""

    subject: str = ""
    text: str = ""
    html: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def check_template(body: Mapping[str, Any]) -> None:
    template = read_fields(body, MailTemplate)
    if not template.subject.strip():
        raise Invalid(SUBJECT_RULE, field="subject")
    if printable(template.subject) != template.subject:
        raise Invalid("a subject is one line of printable characters", field="subject")
    if not template.text.strip() and not template.html.strip():
        raise Invalid(MAIL_RULE, field="text")


def read_mail(content: Content) -> MailContent:
    url = str(content.get(URL_FIELD) or "")
    return MailContent(
        subject=printable(str(content.get("subject", ""))),
        text=str(content.get("text", "")),
        html=str(content.get("html", "")),
        headers=list_headers(url) if _URL.fullmatch(url) else {},
    )


def is_dead_address(words: str, *, otherwise: bool = False) -> bool:
    """Whether a refusal says that the recipient's address will never work. The enhanced status code (RFC 3463)
    decides, then the words, then `otherwise`. A full mailbox, a policy, or a fault of the sender says nothing about
    the address: such a message may be sent again."""
    if _OF_OTHERS.search(words):
        return False
    if code := _CODE.search(words):
        return code[0] in _DEAD_CODES
    return _DEAD_WORDS.search(words) is not None or otherwise


def check_sender(sender: str, from_name: str, reply_to: str | None) -> None:
    for field_, address in (("from", sender), ("replyTo", reply_to)):
        if address is not None and in_ascii(address) != address:
            raise Invalid("give an address in ASCII without a name, such as news@example.com", field=field_)
    if printable(from_name) != from_name:
        raise Invalid("a name is one line of printable characters", field="fromName")


def in_ascii(address: str) -> str | None:
    """The address with its domain as in DNS; `None` if it is invalid or cannot be written in ASCII."""
    return address_in_ascii(address) if is_mailbox(address) else None
