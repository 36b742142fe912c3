"""Suppressions: recipients who get nothing more from an app by a channel, of one list or of all, and the cause.

Bounces, complaints and users' entries are **bars**, which stop every message. An unsubscription is the recipient's
own wish, which stops all but `transactional` messages. A recipient has at most one suppression for each list: a bar
replaces an unsubscription, and keeps it in `unsubscribed_at`. So an unsubscription survives the end of the bar, and
a bar survives a new subscription.

A recipient's own link has a token with a hash of the address instead of the address. So it works after the
message's row is redacted, and a forwarded link shows no address. The first of the deployment's keys signs it; all
of them verify, so that links in old mails keep working when a new key comes first. A suppression's id is made of
the same four parts, so that a token, a callback and the look-up of a batch all find one id without reading an
address from a token. (The hash contains no secret, because keys change and suppressions stay: the owner of a link
can test a guess of its address.)
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from unicodedata import is_normalized

import msgspec
from msgspec import Struct

from shared.core.errors import Invalid
from shared.messages.rules.answers import Channel, Reason

EVERYTHING = ""
"""The list of recipients who get nothing from an app by this channel: bounces, complaints, and complete
unsubscriptions."""
URL_FIELD = "unsubscribeUrl"
"""The field of a rendered mail with its recipient's own link. Jobs add it; templates cannot."""
ONE_CLICK = ("List-Unsubscribe", "One-Click")
"""The field and value that a mail program posts to the link for an unsubscription (RFC 8058)."""
_HASH_BYTES = 16
_SIGNATURE_BYTES = 16
_TOKEN_CHARACTERS = 2_048
_PURPOSE = b"carillon unsubscribing 1\n"


class Listing(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    app_id: str
    channel: Channel
    address_hash: bytes
    list: str = EVERYTHING

    @property
    def suppression_id(self) -> str:
        """The id of this recipient's suppression, the same in all deployments."""
        return hashlib.blake2b(_encode(self), digest_size=_HASH_BYTES).hexdigest()

    @property
    def of_everything(self) -> "Listing":
        return Listing(self.app_id, self.channel, self.address_hash)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Listing).decode


def listing_of(app_id: str, channel: Channel, address: str, list_name: str = EVERYTHING) -> Listing:
    """The listing of an address in normal form (`shared.messages.rules.recipients`)."""
    salt = hashlib.blake2b(app_id.encode(), digest_size=_HASH_BYTES).digest()
    address_hash = hashlib.blake2b(address.encode(), digest_size=_HASH_BYTES, salt=salt).digest()
    return Listing(app_id, channel, address_hash, list_name)


def list_headers(url: str) -> dict[str, str]:
    """The headers for the unsubscribe button of mail programs. One click requires HTTPS (RFC 8058)."""
    headers = {"List-Unsubscribe": f"<{url}>"}
    return headers | ({"List-Unsubscribe-Post": "=".join(ONE_CLICK)} if url.startswith("https://") else {})


class UnsubscribeTokens:
    """Makes and reads tokens. `keys` are secrets of any length; the first one signs, all of them verify."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("a key is needed to sign tokens")
        self._keys = [hmac.digest(key, _PURPOSE, hashlib.sha256) for key in keys]

    def make(self, listing: Listing) -> str:
        content = _encode(listing)
        return _text_of(_sign(self._keys[0], content) + content)

    def read(self, token: str) -> Listing | None:
        """The token's listing; `None` if none of the keys has signed it. The time taken reveals nothing of the
        signature."""
        signed = _bytes_of(token)
        signature, content = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not any([hmac.compare_digest(_sign(key, content), signature) for key in self._keys]):  # noqa: C419 - all keys
            return None
        try:
            return _decode(content)
        except msgspec.MsgspecError:
            return None


def _sign(key: bytes, content: bytes) -> bytes:
    return hmac.digest(key, content, hashlib.sha256)[:_SIGNATURE_BYTES]


def _text_of(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _bytes_of(token: str) -> bytes:
    """The bytes of the text; empty if it is not the canonical spelling."""
    if len(token) > _TOKEN_CHARACTERS or not token.isascii():
        return b""
    try:
        content = b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return b""
    return content if _text_of(content) == token else b""


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
