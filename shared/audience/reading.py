"""The server's answer with rows of a table: a single row that holds all of a column in one value."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from shared.audience.statements import text_name
from shared.audience.tables import KEY, USER, ZONE
from shared.domain.audience.devices import NO_KEYS, NOBODY, Devices, Keys
from shared.domain.errors import Invalid


class TableRows(Struct, frozen=True, eq=False):
    """Rows of a table of recipients in the order of their `keys`: a list of UTF-8 texts per requested column. NULL
    is empty. Rows that share a key come in the order of their texts, so always in the same order."""

    keys: Keys
    columns: tuple[list[bytes], ...]


def devices_of(rows: Sequence[Any]) -> Devices:
    """The devices in the answer to a statement of `statements`. Only a damaged table has texts that are not UTF-8: the
    server does not check texts that it already stores as UTF-8."""
    [row] = rows
    if row[KEY] is None:
        return NOBODY
    keys = np.frombuffer(row[KEY], ">i8").astype(np.int64)
    zones = _split(row[ZONE], ZONE) if ZONE in row else ()
    return Devices(keys, _split(row[USER], USER), _split(row["token"], "token"), _split(row["locale"], "locale"), zones)


def table_rows_of(rows: Sequence[Any], columns: Sequence[str]) -> TableRows:
    """The rows in the answer to `statements.read_columns`."""
    [row] = rows
    if row[KEY] is None:
        return TableRows(NO_KEYS, tuple([] for _ in columns))
    keys = np.frombuffer(row[KEY], ">i8").astype(np.int64)
    texts = tuple(_split(row[text_name(place)], column) for place, column in enumerate(columns))
    return _order(keys, texts) if (keys[1:] <= keys[:-1]).any() else TableRows(keys, texts)


def _order(keys: Keys, texts: tuple[list[bytes], ...]) -> TableRows:
    listed = keys.tolist()
    order = sorted(range(len(listed)), key=lambda row: (listed[row], [column[row] for column in texts]))
    return TableRows(keys[order], tuple([column[row] for row in order] for column in texts))


def _split(texts: bytes, column: str) -> list[bytes]:
    try:
        if not texts.isascii():
            texts.decode()
    except UnicodeDecodeError:
        raise Invalid(f'column "{column}" holds texts that are not UTF-8', field=column) from None
    return texts.split(b"\0")
