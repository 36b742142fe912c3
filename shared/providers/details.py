"""The words of a provider, as they may stand in a row, a log or an export: one short line, no secret, no whole
address."""

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
    """The beginning of what was said about a message to `to`. Secrets are hidden in every spelling that HTTP knows, and
    mailboxes and phone numbers shown as `a…@example.com` and `…67`, whosever they are."""
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
    """A beginning without its last word, of which half may be an address that no pattern knows any more."""
    return text if len(text) <= _READ_CHARACTERS else text[:_READ_CHARACTERS].rpartition(" ")[0]
