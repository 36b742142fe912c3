"""Channels, by which messages reach recipients, and a provider's answers to a call, in the words of all its kinds."""

from datetime import timedelta
from enum import StrEnum

from msgspec import Struct


class Channel(StrEnum):
    """The kind of a provider's addresses."""

    MAIL = "mail"  # a mailbox: name@example.com
    SMS = "sms"  # a phone number in the form of E.164: +6591234567
    PUSH = "push"  # the token of a device
    OTHER = "other"  # the provider's own kind of address


DETAIL_CHARACTERS = 255


class Reason(StrEnum):
    """The reason why a message did not reach its recipient. The list is closed, because reasons are names of fields;
    the provider's own words are in `detail`."""

    MALFORMED = "malformed"  # no address of this kind
    SUPPRESSED = "suppressed"  # a bounce or a complaint of an earlier message, or a user's entry
    UNSUBSCRIBED = "unsubscribed"  # the recipient wants no more of these
    REFUSED = "refused"  # the provider does not take this content or this recipient
    UNREGISTERED = "unregistered"  # the address is no longer in use
    HARD_BOUNCE = "hard-bounce"  # the recipient's server says that the address will never work
    SOFT_BOUNCE = "soft-bounce"  # the recipient's server refused it this time
    COMPLAINT = "complaint"  # the recipient called it spam
    UNDELIVERED = "undelivered"  # the provider took it and could not deliver it
    ADDRESS_CHANGED = "address-changed"  # the recipient's row has another address by now
    UNRENDERED = "unrendered"  # with its tags filled, it is empty or too long
    GAVE_UP = "gave-up"  # not taken in any of the attempts
    EXPIRED = "expired"  # it was to be sent by an instant that has passed
    CANCELLED = "cancelled"  # withdrawn before it was sent
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
"""The reasons after which a recipient is never tried again."""
NEVER_IN_TIME = frozenset({Reason.EXPIRED, Reason.CANCELLED, Reason.OTHER})
"""The reasons of uncalled messages that say nothing about the recipient."""


class CallAccepted(Struct, frozen=True, tag=True):
    """The provider has the message, under the name `provider_id`; `""` if it gives none."""

    provider_id: str = ""


class CallRefused(Struct, frozen=True, tag=True):
    """The provider has refused the message for good. `field` is the account's field at fault, if any."""

    reason: Reason = Reason.REFUSED
    detail: str = ""
    field: str = ""


class NotNow(Struct, frozen=True, tag=True):
    """The provider has certainly not taken the message, and may take it later. `too_fast`: calls come too fast, or the
    provider wants all calls to wait, so this is no attempt at the message. `field` is the account's field at fault, if
    any: the detail then says what to set."""

    detail: str = ""
    too_fast: bool = False
    retry_after: timedelta | None = None
    field: str = ""


class LoginRefused(Struct, frozen=True, tag=True):
    """The provider no longer accepts the account's secret; `field` as in `CallRefused`."""

    detail: str = ""
    field: str = ""


class CallUnanswered(Struct, frozen=True, tag=True):
    """The provider may or may not have the message."""

    detail: str = ""


Answer = CallAccepted | CallRefused | NotNow | LoginRefused | CallUnanswered
"""The outcome of one call."""
