"""The words of a provider account: its fields, a provider's words made fit to be shown, and callbacks.

Callbacks are a provider's later news about messages that it took. Anyone on the Internet can call, so nothing is
read before its signature is verified. A provider names a message by Carillon's key, `<message>~<attempt>`, if it
carries one, else by its own id. It may repeat news, in any order and days later; the code that folds them into
the ledger handles that.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote, quote_plus

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from shared.core.errors import Invalid, Unauthorized
from shared.core.instants import EPOCH, LATEST
from shared.core.plain_words import read_mistake
from shared.jobs.rules.mails import printable
from shared.messages.rules.answers import DETAIL_CHARACTERS, Reason
from shared.messages.rules.ledger import MessageState, state_of_refusal
from shared.messages.rules.recipients import HIDDEN, mask
from shared.messages.rules.suppressions import SuppressionCause

Shape = TypeVar("Shape")


class Concealed(Struct, frozen=True):
    """A struct with secrets. Its repr shows no values."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def read_fields(fields: Mapping[str, Any], shape: type[Shape], prefix: str = "") -> Shape:
    """The fields as this struct. Raises `Invalid`, which names the field after `prefix`, and shows no value but of a
    choice."""
    try:
        return msgspec.convert(dict(fields), shape)
    except msgspec.ValidationError as error:
        what, path = read_mistake(str(error), shape)
        field = ".".join(filter(None, [prefix, path.removesuffix("[...]")]))
        raise Invalid(what, field=field or None) from None


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


MOST_BYTES = 2**20
_OF_JSON = (msgspec.ValidationError, RecursionError)


class NotSigned(Unauthorized):
    """Nothing proves that the provider sent this."""


class Unreadable(Invalid):
    """The callback has an unknown form. `is_json`: it is JSON of another shape."""

    def __init__(self, reason: str, *, is_json: bool) -> None:
        super().__init__(reason)
        self.is_json = is_json


class CallbackRequest(Struct, frozen=True):
    """A request as it came. `url` is the provider's, below the public URL; names of `headers` are in lower case;
    `message` is the key in the URL, or `""`."""

    url: str
    headers: dict[str, str]
    body: bytes
    message: str = ""


class _Dated(Struct, frozen=True, kw_only=True):
    at: datetime | None = None

    def __post_init__(self) -> None:
        # Times before or after the years that Carillon knows may not exist in UTC.
        if self.at is not None and not EPOCH <= self.at <= LATEST:
            force_setattr(self, "at", None)


class CallbackNews(_Dated, frozen=True, kw_only=True):
    """The news of one message: Carillon's `key` or `""`, the provider's id, and the state. `at` is the provider's
    time of that state, if it is valid. `recipient` is the address that a failed message was for, if the provider
    says so."""

    key: str = ""
    provider_id: str = ""
    state: MessageState
    reason: str = ""
    detail: str = ""
    recipient: str = ""


class CallbackSuppression(_Dated, frozen=True, kw_only=True):
    """The provider sends nothing more to the recipient of one message. The other fields are those of `CallbackNews`."""

    key: str = ""
    provider_id: str = ""
    recipient: str = ""
    cause: SuppressionCause = SuppressionCause.UNSUBSCRIBE


class Callback(_Dated, frozen=True, kw_only=True):
    """The contents of a callback. `at` is its time; `None` if it is missing or invalid. `confirm_url` must be
    fetched: the provider asks whether its callbacks are wanted."""

    news: tuple[CallbackNews, ...] = ()
    suppressions: tuple[CallbackSuppression, ...] = ()
    confirm_url: str = ""


def tell_refusal(
    reason: Reason,
    detail: str,
    *,
    key: str = "",
    provider_id: str = "",
    at: datetime | None = None,
    recipient: str = "",
) -> CallbackNews:
    state = state_of_refusal(reason)
    return CallbackNews(
        key=key, provider_id=provider_id, state=state, reason=reason, detail=detail, at=at, recipient=recipient
    )


def read_json(content: bytes | str, decoder: msgspec.json.Decoder[Shape]) -> Shape:
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"the callback cannot be read: {error}", is_json=isinstance(error, _OF_JSON)) from None


def read_epoch(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
