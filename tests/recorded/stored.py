"""The documents of all collections, as they are written: fields, types, and values."""

from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from typing import Any

from bson import Binary, Int64

from tests.recorded.recorder import Placeholders, show
from tests.recorded.world import World

_BY_CHANCE = {"shard"}
_MOST = 3
"""So many documents of one shape are shown."""


def record_store(world: World) -> dict[str, str]:
    """A file for each collection that has something: documents in the order of their texts."""
    database, files = world.database.database, {}
    for name in sorted(database.list_collection_names()):
        told = [_typed(document) for document in database[name].find()]
        plain = Placeholders(world.names, numbered=False)
        pairs = sorted((_shape(each), plain.apply(show(each)), show(each)) for each in told)
        blocks = []
        for shape, group in groupby(pairs, key=lambda each: each[0]):
            found = list(group)
            blocks += [text for _, _, text in found[:_MOST]]
            if len(found) > _MOST:
                blocks.append(f"({len(found) - _MOST} more of {shape})")
        if blocks:
            files[f"store/{name}.txt"] = Placeholders(world.names).apply("\n\n".join(blocks) + "\n")
    return files


def _shape(document: Mapping[str, Any]) -> str:
    return ",".join(sorted(document))


def _typed(value: Any) -> Any:
    match value:
        case dict():
            return {key: f"<{key}>" if key in _BY_CHANCE else _typed(each) for key, each in value.items()}
        case list():
            return [_typed(each) for each in value]
        case datetime():
            return f"date {value.isoformat(timespec='milliseconds')}Z"
        case Int64():
            return f"long {int(value)}"
        case bytes():
            return f"bytes {_decoded(value)}"
        case Binary():
            return f"binary {value.subtype} {_decoded(bytes(value))}"
        case _:
            return value


def _decoded(value: bytes) -> str:
    """Text as it is; of what is sealed or digested only its size."""
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        return f"({len(value)} bytes)"
