"""Secrets of subscriptions, which sign deliveries. They are stored sealed and shown once."""

import base64
import secrets
from datetime import datetime, timedelta

from msgspec.structs import replace

from shared.domain.accounts.signing_secrets import PREFIX
from shared.domain.bus.subscriptions import EventSubscription, SubscriptionSecret
from shared.domain.errors import Conflict
from shared.secrets import KeyRing

MOST_SECRETS = 5
"""The most secrets that sign at the same time. A delivery has a signature by each."""

_KEY_BYTES = 32
_FIELD = "secret"


def seal_secret(ring: KeyRing, subscription_id: str) -> tuple[SubscriptionSecret, str]:
    """A new secret, sealed and as text. Raises `Invalid` if the deployment has no key."""
    text = PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    return SubscriptionSecret(sealed=ring.seal({_FIELD: text}, _owner(subscription_id))), text


def open_secrets(ring: KeyRing, subscription: EventSubscription, now: datetime) -> tuple[str, ...]:
    """The secrets that sign now, newest first. Raises `Conflict` if the ring lacks a key."""
    signing = [secret for secret in subscription.secrets if secret.until is None or now < secret.until]
    return tuple(ring.open(secret.sealed, _owner(subscription.id))[_FIELD] for secret in reversed(signing))


def rotate_secrets(
    stands: tuple[SubscriptionSecret, ...], new: SubscriptionSecret, now: datetime, keep: timedelta
) -> tuple[SubscriptionSecret, ...]:
    """Add a new secret. Older secrets sign for `keep` more, but no longer than before: the receiver may have any of
    them, because a caller may rotate again after a lost answer. Raises `Conflict` if too many sign."""
    ends = now + keep
    kept = [replace(secret, until=min(secret.until or ends, ends)) for secret in stands]
    signing = [secret for secret in kept if secret.until is not None and now < secret.until]
    if len(signing) >= MOST_SECRETS:
        rule = f"at most {MOST_SECRETS} older secrets may sign: wait until one ends, or end them by `keep_hours` 0"
        raise Conflict(rule, field="keep_hours")
    return (*signing, new)


def _owner(subscription_id: str) -> str:
    return f"bus/{subscription_id}"
