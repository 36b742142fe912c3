"""Documents as they are recorded, read by the store's codecs and written back."""

import json
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from inspect import isclass, isfunction
from typing import Any

from shared.drivers.mongo.documents import Codec, Document
from tests.recorded.recorder import ANSWERS

_DATE = re.compile(r"date (\S+)Z")
_LONG = re.compile(r"long (-?\d+)")
_BYTES = re.compile(r"(?:bytes|binary \d+) (.*)", re.DOTALL)
_NOW = "date 2050-01-01T00:00:00.000Z"


@cache
def readers() -> list[tuple[str, Any, Any]]:
    """The code that reads documents of the store and writes them back: its codecs, and pairs of functions of one
    module, by whatever names."""
    found: dict[Any, tuple[str, Any, Any]] = {}
    for module in [module for name, module in sorted(sys.modules.items()) if name.startswith("shared.")]:
        for value in list(vars(module).values()):
            if isinstance(value, Codec):
                found[value.kind, value.json, value.derived] = (value.kind.__name__, value.value, value.document)
        functions = [each for each in vars(module).values() if isfunction(each) and each.__module__ == module.__name__]
        shapes = {each: tuple(each.__annotations__.values()) for each in functions}
        for read, write in ((one, other) for one in functions for other in functions):
            kind = shapes[write][0] if len(shapes[write]) == 2 else None
            if isclass(kind) and shapes[read] == (Document, kind) and shapes[write] == (kind, Document):
                found[read, write] = (kind.__name__, read, write)
    return list(found.values())


def recorded_documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """The documents of `answers/store`, as the database would give them, by their collections."""
    for path in sorted((ANSWERS / "store").glob("*.txt")):
        text = path.read_text().replace("<lasted>", "1").replace('"<shard>"', "1")
        text = re.sub(r'"date <time:now[^"]*"', f'"{_NOW}"', text)
        for block in text.rstrip("\n").split("\n\n"):
            if block.startswith("{"):
                yield path.stem, _plain(json.loads(block))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, str):
        return value
    if found := _DATE.fullmatch(value):
        return datetime.fromisoformat(found[1]).replace(tzinfo=UTC)
    if found := _LONG.fullmatch(value):
        return int(found[1])
    if found := _BYTES.fullmatch(value):
        return found[1].encode()
    return value


def kind_of(document: dict[str, Any]) -> str:
    """The kind of value that this document is read as, and how what is written back differs: the fields that it leaves
    out, those that it adds by a default, and those that it changes."""
    found = []
    for name, read, write in readers():
        try:
            written = _as_read(write(read(document)))
        except Exception:  # noqa: BLE001  # of another kind
            continue
        left = sorted(document.keys() - written.keys())
        added = sorted(written.keys() - document.keys())
        changed = sorted(key for key in written.keys() & document.keys() if written[key] != document[key])
        if 2 * len(left) < len(document):
            told = (("leaves", left), ("adds", added), ("changes", changed))
            words = "".join(f" {word} {' '.join(fields)};" for word, fields in told if fields)
            found.append((len(left) + len(added) + len(changed), name, words))
    return min((f"{name}:{words or ' equal'}" for count, name, words in found if count == min(found)[0]), default="")


def _as_read(value: Any) -> Any:
    """As the database gives it back."""
    if isinstance(value, dict):
        return {key: _as_read(each) for key, each in value.items()}
    return [_as_read(each) for each in value] if isinstance(value, list | tuple) else value


def read_back() -> str:
    """A line for each shape of a collection's documents: the fields, and the kinds that keep all of them."""
    lines = []
    for collection, document in recorded_documents():
        line = f"{collection} [{' '.join(sorted(document))}] {kind_of(document) or '(no codec)'}"
        if line not in lines:
            lines.append(line)
    return "\n".join(lines) + "\n"
