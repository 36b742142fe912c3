"""The secrets of tokens of the bus, in Routemaster's form: words that people may choose, such as `alice-1234`.

Routemaster's clients accept only these, so generated secrets have the same alphabet: `<name>--<32 hex digits>`.
"""

import re

from shared.domain.errors import Invalid

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
