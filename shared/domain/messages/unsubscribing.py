"""Unsubscribing: the token in a recipient's own link.

A token contains a hash of the address instead of the address. So it works after the message's row is redacted, and a
forwarded link shows no address. The first of the deployment's keys signs it; all of them verify, so that links in old
mails keep working when a new key comes first.

A suppression's id is made of the same four parts, so that a token, a callback and the look-up of a batch all find one
id without reading an address from a token. (The hash contains no secret, because keys change and suppressions stay: the
owner of a link can test a guess of its address.)
"""

import binascii
import hashlib
import hmac
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from shared.domain.messages.channels import Channel

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
    """The listing of an address in normal form (`shared.domain.messages.recipients`)."""
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
