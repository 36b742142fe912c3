"""The secrets of the bus's tokens, and the signing secrets of namespaces.

A token of the bus has Routemaster's form: words that people may choose, such as `alice-1234`. Its clients accept
only these, so generated secrets have the same alphabet: `<name>--<32 hex digits>`.

A receiver recognises a namespace's callbacks by its signing secret, which is derived from the deployment's key and
from random bytes in the store. Both are needed, because every receiver that verifies with the deployment's key
knows it. A secret is shown once, and never stored. A replaced secret also signs for a day, so that receivers can
change over.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from shared.core.errors import Conflict, Invalid

SECRET_CHARACTERS = 64
RANDOM_BYTES = 16
_SECRET = re.compile(r"[a-z0-9:_-]{1,64}")
_OTHERS = re.compile(r"[^a-z0-9:_-]")
_NAME_CHARACTERS = SECRET_CHARACTERS - len("--") - 2 * RANDOM_BYTES


def check_bus_secret(secret: str, *, field: str) -> None:
    """Raise `Invalid` if this cannot be a token's secret. The error does not show it."""
    if _SECRET.fullmatch(secret) is None:
        raise Invalid("a token is 1 to 64 of a to z, 0 to 9, ':', '_' and '-'", field=field)


def make_bus_secret(name: str, random: bytes) -> str:
    """The secret from 16 random bytes for a token of this name, which is part of it in simplified form."""
    return f"{_OTHERS.sub('-', name.lower())[:_NAME_CHARACTERS]}--{random.hex()}"


PREFIX = "whsec_"
OVERLAP = timedelta(hours=24)
VERSIONS = 5  # that sign at the same time


class SigningVersion(Struct, frozen=True):
    number: int
    salt: str
    made_at: datetime


class NamespaceSecrets(Struct, frozen=True, kw_only=True):
    """The secrets of a namespace, `id`, that may still sign: the oldest first, at least one."""

    id: str
    versions: tuple[SigningVersion, ...]

    @property
    def newest(self) -> SigningVersion:
        return self.versions[-1]


def rotate(secrets: NamespaceSecrets | None, namespace: str, salt: str, now: datetime) -> NamespaceSecrets:
    if secrets is None:
        return NamespaceSecrets(id=namespace, versions=(SigningVersion(1, salt, now),))
    current = tuple(_active_versions(secrets.versions, now))
    if len(current) >= VERSIONS:
        raise Conflict(f"{VERSIONS} secrets of this namespace sign already; the oldest ends within a day")
    fresh = SigningVersion(secrets.newest.number + 1, salt, now)
    return replace(secrets, versions=(*current, fresh))


def signing_secrets(secrets: NamespaceSecrets | None, deployment_key: str, now: datetime) -> tuple[str, ...]:
    """The secrets that sign a namespace's callbacks, the newest first. The deployment's own secret signs for a
    namespace without secrets, and for a day after its first."""
    if secrets is None:
        return (deployment_key,)
    own = [derive_secret(deployment_key, secrets.id, version) for version in _active_versions(secrets.versions, now)]
    first = secrets.versions[0]
    shared = [deployment_key] if first.number == 1 and now < first.made_at + OVERLAP else []
    return (*reversed(own), *shared)


def derive_secret(deployment_key: str, namespace: str, version: SigningVersion) -> str:
    """The secret of this version, in the form of Standard Webhooks."""
    message = f"carillon signing secret\n{namespace}\n{version.number}\n{version.salt}"
    key = hmac.digest(deployment_key.encode(), message.encode(), hashlib.sha256)
    return PREFIX + base64.b64encode(key).decode()


def _active_versions(versions: Sequence[SigningVersion], now: datetime) -> Iterator[SigningVersion]:
    """The versions that sign. Each does so for a day after the next was made."""
    yield from (version for version, following in pairwise(versions) if now < following.made_at + OVERLAP)
    yield versions[-1]
