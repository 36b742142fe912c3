"""All errors that Carillon raises on purpose, as one tree.

```
CarillonError
├── Refused            the caller's fault: an API answers 4xx and nothing has changed
│   ├── Invalid        a field breaks a rule (422)
│   ├── Unauthorized   the caller is unknown (401)
│   ├── Forbidden      the caller is known and may not do this (403)
│   ├── NotFound       the thing does not exist (404)
│   │   └── Hidden     or the caller may not see it
│   ├── Gone           the thing existed, and is no longer kept (410)
│   ├── Conflict       the thing exists already, or is in use (409)
│   └── TooMany        the caller asks too often (429)
├── Unavailable        a required server cannot be reached or did not answer; try again later
│   └── Denied         it answered and denied access: an operator must correct credentials or rights
├── Unserved           a server does not support the command: no retry helps, and the logs say more
├── LaneLost           the outcome of a transaction is unknown, or its lane was fenced
├── Undeliverable      a user's target answered and refused (`shared.clock.rules.callbacks`)
└── Poisoned           a message that can never be understood: dead letters
```

The check and the reader of a value raise `Invalid`. Every method of a store or driver may raise `Unavailable`.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice
from typing import Any
from unicodedata import normalize

_COMPARED_NAMES, _COMPARED_CHARACTERS = 1_000, 64


class CarillonError(Exception):
    """The root of all errors that are raised on purpose."""


class Refused(CarillonError):
    """A request that cannot be met; `reason` explains it in plain words."""

    def __init__(self, reason: str, *, field: str | None = None, value: Any = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field
        self.value = value


class Invalid(Refused):
    """The named field breaks the rule in `reason`."""


class Unauthorized(Refused):
    """No identity, or an unknown one."""


class Forbidden(Refused):
    """The identity is known but may not do this, or the state does not allow it."""


class NotFound(Refused):
    """The thing does not exist, or the caller may not see it."""


class Hidden(NotFound):
    """The thing is missing, or access to it is denied."""


class Gone(Refused):
    """The thing existed, and is no longer kept."""


class Conflict(Refused):
    """Another thing already has the unique value, or still needs this one."""


class TooMany(Refused):
    """The caller asks too often; it may ask again after `retry_after_seconds`."""

    def __init__(self, reason: str, *, retry_after_seconds: int) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(CarillonError):
    """A server cannot be reached or gave no answer in time. The requested act may have happened. `server` is its name,
    if known."""

    def __init__(self, *told: object, server: str = "") -> None:
        super().__init__(*told)
        self.server = server


class Denied(Unavailable):
    """A server denies access: it does not know the credentials, or they lack a right."""


class Unserved(CarillonError):
    """A server does not support a command: Carillon's command is wrong, or the server lacks it."""


class LaneLost(CarillonError):
    """The transaction of `lane` ended in neither a confirmed commit nor a confirmed abort; only recovery can find the
    outcome."""

    def __init__(self, lane: str, reason: str) -> None:
        super().__init__(f"lane {lane}: {reason}")
        self.lane = lane


class Poisoned(CarillonError):
    """A message of another version, shape or origin: no retry will ever make it readable."""


def suggest(written: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: `; did you mean filters?`, or `""` if no known name is near. Case, `_`
    and `-` do not count."""
    # Comparing long names is slow, and callers choose their length and number.
    names = [name for name in islice(known, _COMPARED_NAMES) if len(name) <= _COMPARED_CHARACTERS]
    folded = {fold_name(name): name for name in reversed(names)}
    alike = get_close_matches(fold_name(written), folded) if len(written) <= _COMPARED_CHARACTERS else []
    near = [folded[name] for name in alike if _count_edits(fold_name(written), name) <= max(1, len(written) // 3)]
    return f"; did you mean {near[0]}?" if near else ""


def _count_edits(one: str, other: str) -> int:
    """The number of insertions, deletions, changes and swaps of neighbouring letters between two texts."""
    before, row = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(one):
        last, before, row = before, row, [i + 1]
        for j, known in enumerate(other):
            edits = min(before[j] + (letter != known), before[j + 1] + 1, row[j] + 1)
            is_swap = i > 0 and j > 0 and (letter, one[i - 1]) == (other[j - 1], known)
            row.append(min(edits, last[j - 1] + 1) if is_swap else edits)
    return row[-1]


def fold_name(name: str) -> str:
    """The letters and digits of a name, without case and in their plain forms."""
    return "".join(filter(str.isalnum, normalize("NFKC", name).casefold()))
