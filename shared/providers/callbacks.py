"""Callbacks: what providers tell later of messages that they took.

Anybody on the Internet can call, so nothing is read before its signature is verified. A provider names a message by our
own key, `<message>~<attempt>`, where it carries one, else by its own id. It may tell the same several times, in any
order and days later: whoever folds the news into the ledger sees to that.
"""

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from shared.domain.errors import Invalid, Unauthorized
from shared.domain.instants import EPOCH, LATEST
from shared.domain.messages.answers import Reason
from shared.domain.messages.ledger import MessageState, state_of_refusal
from shared.domain.messages.suppressions import SuppressionCause

MOST_BYTES = 2**20

Shape = TypeVar("Shape")

_OF_JSON = (msgspec.ValidationError, RecursionError)


class NotSigned(Unauthorized):
    """Nothing proves that the provider has sent this."""


class Unreadable(Invalid):
    """It is not written as we know this provider to write. `is_json`: it is JSON, and of another shape."""

    def __init__(self, reason: str, *, is_json: bool) -> None:
        super().__init__(reason)
        self.is_json = is_json


class CallbackRequest(Struct, frozen=True):
    """A request as it came. `url` is what the provider called, below our public URL; the names of `headers` are in
    lower case; `message` is the key that stands in the URL, or `""`."""

    url: str
    headers: dict[str, str]
    body: bytes
    message: str = ""


class CallbackNews(Struct, frozen=True, kw_only=True):
    """The news of one message: our `key` (`""` where it does not know it), its own id, and where the message stands.
    `at` is when that was so, where the provider says an instant that can be kept, and `recipient` whom it was for,
    where it says so of one that did not reach them."""

    key: str = ""
    provider_id: str = ""
    state: MessageState
    reason: str = ""
    detail: str = ""
    at: datetime | None = None
    recipient: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "at", _keep_if_possible(self.at))


class CallbackSuppression(Struct, frozen=True, kw_only=True):
    """The provider sends nothing more to the recipient of one message, who has unsubscribed unless the `cause` says
    otherwise. The other fields are those of `CallbackNews`."""

    key: str = ""
    provider_id: str = ""
    at: datetime | None = None
    recipient: str = ""
    cause: SuppressionCause = SuppressionCause.UNSUBSCRIBE

    def __post_init__(self) -> None:
        force_setattr(self, "at", _keep_if_possible(self.at))


class Callback(Struct, frozen=True, kw_only=True):
    """The contents of a callback. `at` is when it was made; `None` for a kind that does not tell, or an instant that
    cannot be. `confirm_url` is to be fetched: the provider asks whether we want its callbacks."""

    news: tuple[CallbackNews, ...] = ()
    suppressions: tuple[CallbackSuppression, ...] = ()
    at: datetime | None = None
    confirm_url: str = ""

    def __post_init__(self) -> None:
        force_setattr(self, "at", _keep_if_possible(self.at))


def tell_refusal(
    reason: Reason,
    detail: str,
    *,
    key: str = "",
    provider_id: str = "",
    at: datetime | None = None,
    recipient: str = "",
) -> CallbackNews:
    """The news that a message did not reach its recipient."""
    state = state_of_refusal(reason)
    return CallbackNews(
        key=key, provider_id=provider_id, state=state, reason=reason, detail=detail, at=at, recipient=recipient
    )


def read_json(content: bytes | str, decoder: msgspec.json.Decoder[Shape]) -> Shape:
    """Decode a text that a provider has written. Raises `Unreadable`."""
    try:
        return decoder.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"the callback cannot be read: {error}", is_json=isinstance(error, _OF_JSON)) from None


def read_epoch(seconds: Any) -> datetime | None:
    """The instant so many seconds after the beginning of 1970; `None` where that is none."""
    try:
        return datetime.fromtimestamp(float(seconds), UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _keep_if_possible(at: datetime | None) -> datetime | None:
    """The instant, where it lies in the years that Carillon knows: in UTC, others may be none at all."""
    return at if at is not None and EPOCH <= at <= LATEST else None
