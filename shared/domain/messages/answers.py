"""The answers of a provider to a call, in the words of all kinds of providers."""

from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

DETAIL_CHARACTERS = 255


class Reason(StrEnum):
    """Why a message did not reach its recipient. The list is closed, since reasons are names of fields; what the
    provider itself said stands in `detail`."""

    MALFORMED = "malformed"  # no address of this kind
    SUPPRESSED = "suppressed"  # a bounce or a complaint of an earlier message, or somebody's wish
    UNSUBSCRIBED = "unsubscribed"  # the recipient wants no more of these
    REFUSED = "refused"  # the provider does not take this content or this recipient
    UNREGISTERED = "unregistered"  # the address is nobody's any more
    HARD_BOUNCE = "hard-bounce"  # the recipient's server says that the address will never work
    SOFT_BOUNCE = "soft-bounce"  # the recipient's server would not take it this time
    COMPLAINT = "complaint"  # the recipient called it spam
    UNDELIVERED = "undelivered"  # the provider took it and could not deliver it
    ADDRESS_CHANGED = "address-changed"  # the recipient's row has another address by now
    UNRENDERED = "unrendered"  # with its tags filled, it is empty or too long
    GAVE_UP = "gave-up"  # not taken in any of the attempts
    EXPIRED = "expired"  # it was to be sent by an instant that has passed
    CANCELLED = "cancelled"  # taken back before it was sent
    OTHER = "other"


ADDRESS_AT_FAULT = frozenset(
    {
        Reason.MALFORMED,
        Reason.SUPPRESSED,
        Reason.UNSUBSCRIBED,
        Reason.UNREGISTERED,
        Reason.HARD_BOUNCE,
        Reason.COMPLAINT,
    }
)
"""The reasons for which a recipient is never tried again."""

NEVER_IN_TIME = frozenset({Reason.EXPIRED, Reason.CANCELLED, Reason.OTHER})
"""The reasons for which a message was never called that say nothing of its recipient."""


class CallAccepted(Struct, frozen=True, tag=True):
    """The provider has the message, and calls it `provider_id`; `""` where it does not say."""

    provider_id: str = ""


class CallRefused(Struct, frozen=True, tag=True):
    """The provider has not taken it, and will not. `field` is the account's field at fault, if one is."""

    reason: Reason = Reason.REFUSED
    detail: str = ""
    field: str = ""


class NotNow(Struct, frozen=True, tag=True):
    """The provider has certainly not taken it, and may at another time. `too_fast` says that calls come too fast, or
    that it asks all of them to wait: that is no fault of the message, and no attempt at it. `field` is the account's
    field at fault, if one is: the detail then says what to set."""

    detail: str = ""
    too_fast: bool = False
    retry_after: timedelta | None = None
    field: str = ""


class LoginRefused(Struct, frozen=True, tag=True):
    """The provider knows the account's secret no more; `field` as in `CallRefused`."""

    detail: str = ""
    field: str = ""


class CallUnanswered(Struct, frozen=True, tag=True):
    """The provider may have the message, or not: nobody can tell."""

    detail: str = ""


Answer = CallAccepted | CallRefused | NotNow | LoginRefused | CallUnanswered
"""The outcome of one call."""
