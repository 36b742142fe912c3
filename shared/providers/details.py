"""A provider's words made fit for rows, logs and exports: one short line, no secret, no whole address."""

import json
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from shared.domain.jobs.mails import printable
from shared.domain.messages.answers import DETAIL_CHARACTERS
from shared.domain.messages.recipients import HIDDEN, mask

_READ_CHARACTERS = 600
_MAILBOX = re.compile(r"([^\s<>@:,;\"'()])[^\s<>@:,;\"()]*@([^\s<>@:,;\"'()]+)")
_NUMBER = re.compile(r"(?<![\w+])\+?\d(?:[ ().-]?\d){4,}(\d\d)(?!\w)")


def tell(text: str, to: str = "", secrets: Iterable[str] = ()) -> str:
    """The beginning of a text about a message to `to`. Secrets are hidden in every spelling of HTTP; all mailboxes
    and phone numbers become `a…@example.com` and `…67`."""
    for secret in filter(None, secrets):
        text = _replace(text, secret, HIDDEN)
    if to:
        text = _replace(text, to, mask(to))
    line = _NUMBER.sub(rf"{HIDDEN}\1", _MAILBOX.sub(rf"\1{HIDDEN}@\2", printable(_cut(text))))
    return line.strip()[:DETAIL_CHARACTERS]


def _replace(text: str, hidden: str, shown: str) -> str:
    for spelling in {hidden, quote(hidden), quote(hidden, safe=""), quote_plus(hidden), json.dumps(hidden)[1:-1]}:
        text = re.sub(re.escape(spelling), lambda _: shown, text, flags=re.IGNORECASE)
    return text


def _cut(text: str) -> str:
    """The beginning without its last word, which may be half an address that no pattern matches any more."""
    return text if len(text) <= _READ_CHARACTERS else text[:_READ_CHARACTERS].rpartition(" ")[0]
