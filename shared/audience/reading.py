"""What the server answers when it is asked for devices: one row, with all of a column in one value."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from shared.audience.tables import KEY, USER, ZONE
from shared.domain.audience.devices import NOBODY, Devices
from shared.domain.errors import Invalid


def devices_of(rows: Sequence[Any]) -> Devices:
    """The devices in the answer to a statement of `statements`. Raises `Invalid` for a text that is not UTF-8, which
    only a damaged table holds: a server looks at what it converts, not at what it stores as UTF-8 already."""
    [row] = rows
    if row[KEY] is None:
        return NOBODY
    keys = np.frombuffer(row[KEY], ">i8").astype(np.int64)
    zones = _split(row[ZONE], ZONE) if ZONE in row else ()
    return Devices(keys, _split(row[USER], USER), _split(row["token"], "token"), _split(row["locale"], "locale"), zones)


def _split(texts: bytes, column: str) -> list[bytes]:
    try:
        if not texts.isascii():
            texts.decode()
    except UnicodeDecodeError:
        raise Invalid(f'column "{column}" holds texts that are not UTF-8', field=column) from None
    return texts.split(b"\0")
