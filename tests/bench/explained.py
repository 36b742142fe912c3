"""How many keys and documents the queries of a request examine, as the database itself explains them."""

import sys
from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from pymongo import monitoring
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

_QUERIES = frozenset({"find", "aggregate", "count", "distinct"})
_OF_THE_DRIVER = ("lsid", "$db", "$clusterTime", "$readPreference", "txnNumber", "apiVersion")


class Examined(Struct, frozen=True):
    """The most that one query examined; `unknown` queries could not be explained."""

    queries: int = 0
    keys: int = 0
    documents: int = 0
    unknown: int = 0


class Commands(monitoring.CommandListener):
    """The queries that the clients of this process send, those that are made after it was registered."""

    def __init__(self) -> None:
        self._seen: list[dict[str, Any]] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        """Keep what is a query."""
        if event.command_name in _QUERIES:
            self._seen.append(dict(event.command))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None:
        """Nothing: what counts is that it was sent."""

    def failed(self, event: monitoring.CommandFailedEvent) -> None:
        """Nothing: what counts is that it was sent."""

    def take(self) -> list[dict[str, Any]]:
        """What was sent since the last call."""
        seen, self._seen = self._seen, []
        return seen


async def explain(database: AsyncDatabase[dict[str, Any]], commands: list[dict[str, Any]]) -> Examined:
    """Have these explained, of those that ask alike the first one."""
    keys, documents, unknown = [0], [0], 0
    alike = {_shape(command): command for command in reversed(commands)}
    for command in alike.values():
        asked = {name: value for name, value in command.items() if name not in _OF_THE_DRIVER}
        try:
            told = await database.command({"explain": asked, "verbosity": "executionStats"})
        except PyMongoError:
            unknown += 1
            continue
        most = _end_of(told)
        keys.append(min(max(_values(told, "totalKeysExamined"), default=0), most))
        documents.append(min(max(_values(told, "totalDocsExamined"), default=0), most))
    return Examined(len(alike), max(keys), max(documents), unknown)


def _end_of(told: Any) -> int:
    """How many keys the plan reads at most: up to its limit, if an index gives the order and nothing is filtered behind
    it. The stand-in plans so, and then reads the whole range; a real server stops."""
    plan = str(next(_values(told, "winningPlan", dict), {}))
    is_read_in_order = "IXSCAN" in plan and not any(word in plan for word in ("'SORT'", "'filter'"))
    return min(_values(told, "limitAmount"), default=sys.maxsize) if is_read_in_order else sys.maxsize


def _shape(command: dict[str, Any]) -> tuple[str, ...]:
    """What is asked of which collection, whatever the values: the names in its query, or its whole pipeline."""
    name, collection = next(iter(command.items()))
    asked = command.get("filter") or command.get("query") or {}
    return (name, collection, *sorted(asked), str(command.get("sort")), str(command.get("pipeline", "")))


def _values(told: Any, name: str, kind: type = int) -> Iterator[Any]:
    if isinstance(told, dict):
        if isinstance(told.get(name), kind):
            yield told[name]
        for value in told.values():
            yield from _values(value, name, kind)
    elif isinstance(told, list):
        for value in told:
            yield from _values(value, name, kind)
