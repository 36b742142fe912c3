"""Ids of things, and the identity of a request that may come again.

Carillon's own ids sort by their time. Two requests are compared after parsing their JSON: the order of keys and
blanks do not count. A number counts as written, because some receivers distinguish `1.0` from `1`. Values are
never shown, because they may be secret.
"""

import hashlib
import re
import uuid
from collections.abc import Mapping

import msgspec
from msgspec import Raw, Struct

from shared.core.errors import Invalid

UUID_FORMS = re.compile(
    r"(?:urn:uuid:)?(?P<canonical>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<plain>[0-9a-f]{32})"
    r"|\{(?P<braced>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\}",
    re.IGNORECASE | re.ASCII,
)


def time_ordered_id(now: int, noise: int) -> str:
    """A UUID (version 7) that sorts by its time, to a quarter of a microsecond: `now` in ns, `noise` 62 random bits."""
    milliseconds, rest = divmod(now, 1_000_000)
    fraction = rest * 4096 // 1_000_000
    bits = milliseconds << 80 | 7 << 76 | fraction << 64 | 2 << 62 | noise & (1 << 62) - 1
    return str(uuid.UUID(int=bits))


def read_uuid(text: str, *, field: str) -> str:
    """The canonical form of a UUID, also from 32 hex digits, braces or a URN."""
    match = UUID_FORMS.fullmatch(text)
    if match is None:
        raise Invalid(f"{field} must be a UUID", field=field, value=text)
    return str(uuid.UUID(hex=next(filter(None, match.groups()))))


URL = "URL"
_DIGEST_CHARACTERS = 32
_MOST_NAMED = 10
_numbers_as_written = msgspec.json.Decoder(float_hook=lambda number: Raw(number.encode()))


class Idempotency(Struct, frozen=True):
    """The identity of a POST, which recognises a repeat: `key` contains the caller's namespace, `parts` a digest of its
    URL and of each field of its body, and `digest` is that of all of them. Only jobs store `parts`, because the digest
    of one field would let a reader guess a message's address."""

    key: str
    digest: str
    parts: dict[str, str] = {}

    def is_same(self, other: "Idempotency") -> bool:
        return (self.key, self.digest) == (other.key, other.digest)

    def refuse(self, other: "Idempotency") -> Invalid:
        differences = name_differences(self.parts, other.parts) if self.parts and other.parts else ""
        return Invalid(f"this key was used for another request{differences}", field="Idempotency-Key")


def canonical_json(text: bytes) -> bytes:
    """The same JSON with sorted keys and no blanks; a text that is not JSON stays unchanged."""
    try:
        return msgspec.json.encode(_numbers_as_written.decode(text), order="deterministic")
    except (ValueError, RecursionError):
        return text


def identify(key: str, url: str, body: bytes) -> Idempotency:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Raw])
    except ValueError:
        fields = {"body": Raw(body)}
    read = {name: canonical_json(bytes(value)) for name, value in fields.items()}
    parts = {name: _digest(value) for name, value in (read | {URL: url.encode("utf-8", "replace")}).items()}
    return Idempotency(key, _digest(msgspec.json.encode(parts, order="deterministic")), parts)


def find_differences(one: Mapping[str, object], other: Mapping[str, object], above: str = "") -> list[str]:
    paths = list[str]()
    for name in [*one, *(name for name in other if name not in one)]:
        mine, theirs = one.get(name), other.get(name)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            paths += find_differences(mine, theirs, f"{above}{name}.")
        elif mine != theirs:
            paths.append(f"{above}{name}")
    return paths


def name_differences(one: Mapping[str, object], other: Mapping[str, object]) -> str:
    paths = find_differences(one, other)
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return f"; differs in: {', '.join(paths[:_MOST_NAMED])}{more}"


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:_DIGEST_CHARACTERS]
