"""Suppressions: recipients who get nothing more from an app by a channel, of one list or of all, and the cause.

Bounces, complaints and users' entries are **bars**, which stop every message. An unsubscription is the recipient's own
wish, which stops all but `transactional` messages. A recipient has at most one suppression for each list: a bar
replaces an unsubscription, and keeps it in `unsubscribed_at`. So an unsubscription survives the end of the bar, and a
bar survives a new subscription.
"""

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from unicodedata import is_normalized

from msgspec import Struct

from shared.domain.errors import Invalid
from shared.domain.messages.answers import Reason
from shared.domain.messages.channels import Channel
from shared.domain.messages.unsubscribing import EVERYTHING, Listing, listing_of

LIST_CHARACTERS = 100
LIST_RULE = f"up to {LIST_CHARACTERS} printable characters in Unicode's form NFC, without blanks around them"


class SuppressionCause(StrEnum):
    """The cause of a suppression."""

    BOUNCE = "bounce"  # the address will never work
    COMPLAINT = "complaint"  # the recipient called a message spam
    UNSUBSCRIBE = "unsubscribe"  # the recipient wants no more
    HAND = "hand"  # a user of the app has entered it


class Suppression(Struct, frozen=True, kw_only=True):
    """A recipient who gets nothing more of `list`; `""` is all lists. The `address` is in normal form, and `""` if only
    its hash is known, as after an unsubscription by a link. `message_id` is the message that bounced or was complained
    about. `unsubscribed_at` records an unsubscription, whatever the cause."""

    id: str
    app_id: str
    channel: Channel
    address: str
    address_hash: str
    list: str = EVERYTHING
    cause: SuppressionCause
    message_id: str = ""
    at: datetime
    unsubscribed_at: datetime | None = None

    def __repr__(self) -> str:
        """No personal data, because logs contain it."""
        return f"Suppression({self.id}, {self.app_id}, {self.channel.value}, {self.cause.value})"

    @property
    def is_bar(self) -> bool:
        return self.cause is not SuppressionCause.UNSUBSCRIBE

    def holds_for(self, list_name: str) -> bool:
        return self.list in (EVERYTHING, list_name)


class SubscriptionState(Struct, frozen=True, kw_only=True):
    """Whether messages of a list reach a recipient. `unsubscribed` is from this list, `from_everything` from all of the
    app's by this channel; `barred` does not depend on the recipient's wishes."""

    list: str
    unsubscribed: bool
    from_everything: bool
    barred: bool


def suppression_id(app_id: str, channel: Channel, address: str, list_name: str = EVERYTHING) -> str:
    return listing_of(app_id, channel, address, list_name).suppression_id


def hash_address(app_id: str, address: str) -> str:
    """The hash that finds an app's suppressions of an address, even those without the address."""
    return listing_of(app_id, Channel.OTHER, address).address_hash.hex()


def suppress_address(
    app_id: str,
    channel: Channel,
    address: str,
    *,
    cause: SuppressionCause,
    at: datetime,
    list_name: str = EVERYTHING,
    message_id: str = "",
) -> Suppression:
    listing = listing_of(app_id, channel, address, list_name)
    return _suppress(listing, address=address, cause=cause, message_id=message_id, at=at)


def unsubscribe_listing(listing: Listing, *, at: datetime) -> Suppression:
    """The suppression that the recipient of this listing asks for, known by a hash alone."""
    return _suppress(listing, address="", cause=SuppressionCause.UNSUBSCRIBE, message_id="", at=at)


def subscription_of(listing: Listing, found: Collection[Suppression]) -> SubscriptionState:
    """The state of the recipient of a listing, from their suppressions of this list and of everything."""
    unsubscribed = {each.list for each in found if each.unsubscribed_at is not None}
    return SubscriptionState(
        list=listing.list,
        unsubscribed=listing.list in unsubscribed,
        from_everything=EVERYTHING in unsubscribed,
        barred=any(each.is_bar and each.holds_for(listing.list) for each in found),
    )


def strongest(suppressions: Collection[Suppression]) -> Suppression | None:
    return max(suppressions, key=lambda suppression: suppression.is_bar, default=None)


def reason_of(found: Collection[Suppression], *, list_name: str, transactional: bool) -> Reason | None:
    """The reason why a message of this list does not go to the recipient of these suppressions; `None` if it does."""
    deciding = strongest([suppression for suppression in found if suppression.holds_for(list_name)])
    if deciding is None:
        return None
    if deciding.is_bar:
        return Reason.SUPPRESSED
    return None if transactional else Reason.UNSUBSCRIBED


def check_list(name: str, field: str = "list") -> None:
    """Raise `Invalid` unless a list can have this name; `""` is all lists."""
    is_plain = name.isprintable() and name == name.strip() and is_normalized("NFC", name)
    if len(name) > LIST_CHARACTERS or not is_plain:
        raise Invalid(f"a list's name has {LIST_RULE}", field=field, value=name)


def _suppress(listing: Listing, *, address: str, cause: SuppressionCause, message_id: str, at: datetime) -> Suppression:
    return Suppression(
        id=listing.suppression_id,
        app_id=listing.app_id,
        channel=listing.channel,
        address=address,
        address_hash=listing.address_hash.hex(),
        list=listing.list,
        cause=cause,
        message_id=message_id,
        at=at,
        unsubscribed_at=at if cause is SuppressionCause.UNSUBSCRIBE else None,
    )
