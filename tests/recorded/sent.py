"""Bytes that go out: records of pushes, calls of schedules, deliveries of the bus."""

import re
import sqlite3
from collections import Counter
from typing import Any

from msgspec import structs

from tests.providers.rules import Arrived
from tests.receivers import Arrival
from tests.recorded.recorder import Placeholders, show
from tests.recorded.scenario import Lived
from tests.recorded.world import World

_ALIKE = 2
"""So many records that differ in ids and numbers only are shown."""
_DATE = re.compile(r"\w{3}, \d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}")
_JWT = re.compile(r"eyJ[\w-]+(?:\.[\w-]+){2}")
_SIGNATURE = re.compile(r"v1,[\w+/=]+")


async def record_sent(world: World, lived: Lived) -> dict[str, str]:
    """The records of all topics, and all calls that arrived."""
    files: dict[str, list[str]] = {}
    alike: Counter[tuple[str, str]] = Counter()
    with sqlite3.connect(world.folder / "stream.db") as log:
        columns = [each[1] for each in log.execute("PRAGMA table_info(records)")]
        for row in log.execute("SELECT * FROM records ORDER BY topic, position"):
            record = dict(zip(columns, row, strict=True))
            record.pop("appended_at", None)
            topic = record.pop("topic")
            lines = [f"{name}: {_text(value)}" for name, value in sorted(record.items())]
            shape = re.sub(r"\d+", "0", Placeholders({}, numbered=False).apply(_text(record["value"])))
            if (seen := alike[topic, shape]) < _ALIKE:
                files.setdefault(f"sent/scenario/records {topic}.txt", []).append("\n".join(lines))
            alike[topic, shape] = seen + 1
    for arrival in sorted(lived.arrivals, key=_place):
        name = arrival.path.partition("?")[0].strip("/")
        files.setdefault(f"sent/scenario/call {name}.txt", []).append(call_text(arrival))
    given: Any = world.rooms.servers
    for message in (*given.broker.delivered, *given.stream.delivered):
        lines = sorted(f"{name}: {_text(value)}" for name, value in structs.asdict(message).items())
        files.setdefault(f"sent/scenario/{type(message).__name__}.txt", []).append("\n".join(lines))
    for name in ("QueueMessage", "TopicMessage"):
        files[f"sent/scenario/{name}.txt"].sort()
    return {name: Placeholders(world.names).apply("\n\n".join(blocks) + "\n") for name, blocks in files.items()}


def _place(arrival: Arrival) -> tuple[str, ...]:
    return arrival.path, *(arrival.headers.get(f"carillon-{name}", "") for name in ("sequence", "attempt"))


def call_text(arrival: Arrival) -> str:
    """A call as it came over the wire."""
    headers = [f"{name}: {_SIGNATURE.sub('v1,<signature>', value)}" for name, value in sorted(arrival.headers.items())]
    return "\n".join([f"POST {arrival.path}", *headers, "", arrival.body])


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else show(value, None)


def provider_text(arrived: Arrived) -> str:
    """A call of a provider as its fake got it."""
    headers = [f"{name}: {value}" for name, value in sorted(arrived.headers.items())]
    text = "\n".join([arrived.path, *headers, "", arrived.body.replace("\r", "\\r")])
    text = _SIGNATURE.sub("v1,<signature>", _JWT.sub("<jwt>", _DATE.sub("<date>", text)))
    return Placeholders({}, times_alone=True).apply(text)
