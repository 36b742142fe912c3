"""Counts what a client asks of MongoDB."""

from collections import Counter
from typing import Any

import pymongo.monitoring
import pytest

# Neither logins nor the driver's care for its connections are ours to count, and a look at the clock is no query.
_NOT_QUERIES = frozenset({"hello", "ismaster", "ping", "endSessions", "killCursors", "saslStart", "saslContinue"})


class Commands(pymongo.monitoring.CommandListener):
    """Counts the commands of clients that are made after it was registered: each kind, and each kind by collection.
    `sent` has them as they were sent."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.by_collection: Counter[str] = Counter()
        self.sent: list[dict[str, Any]] = []

    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        if event.command_name not in _NOT_QUERIES:
            self.counts[event.command_name] += 1
            self.sent.append(dict(event.command))
            self.by_collection[f"{event.command_name} {event.command[event.command_name]}"] += 1

    def succeeded(self, event: pymongo.monitoring.CommandSucceededEvent) -> None:
        pass

    def failed(self, event: pymongo.monitoring.CommandFailedEvent) -> None:
        pass


def count_commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Commands of the clients that this test makes from now on."""
    listener = Commands()
    registered = pymongo.monitoring._LISTENERS
    all_of_them = [*registered.command_listeners, listener]
    monkeypatch.setattr(pymongo.monitoring, "_LISTENERS", registered._replace(command_listeners=all_of_them))
    return listener
