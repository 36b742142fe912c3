"""Kafka's side: transactions that end, markers that show, producers that are fenced.

A lane is a transactional id. It has an epoch, and whoever starts a producer with the id begins the next one: what was
open is rolled back, and requests of an earlier epoch are refused. A marker is decided with its transaction; but a
reader may get the one before it, until the lane is fenced or goes on.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from msgspec import Struct

from shared.jobs.rules.batches import BatchPart


class Fenced(Exception):
    """The lane has a successor, or its transaction took too long."""


class Marker(Struct, frozen=True):
    """What a transaction says of itself. `slot` is the job's chain that it stands in."""

    slot: tuple[str, int]
    batch: str
    ordinal: int
    lane: str
    part: BatchPart

    def __str__(self) -> str:
        return f"{self.batch} by {self.lane} part {self.part.number}"


class Sent(Struct, frozen=True):
    """The records of a part of a batch."""

    batch: str
    number: int
    lane: str
    topic: str
    records: Sequence[bytes]


class Content(Struct, frozen=True):
    """What a transaction holds: the records of a part, its marker, or both."""

    sent: Sent | None
    marker: Marker | None


class _Lane(Struct):
    epoch: int = 0
    open: Content | None = None
    began: float = 0.0
    hidden: Marker | None = None


class Kafka:
    """The server. `out` are the parts that were committed, `given_up` the lanes whose own producers have lost them.
    Whoever reads the records is told of a part by `receive`."""

    def __init__(self, *, timeout: float = 30.0) -> None:
        self.logs: dict[str, list[bytes]] = {}
        self.markers: dict[tuple[str, int], Marker] = {}
        self.out: list[Sent] = []
        self.given_up: set[str] = set()
        self.receive: Callable[[Sent], None] = lambda _: None
        self._timeout = timeout
        self._lanes: defaultdict[str, _Lane] = defaultdict(_Lane)

    def start(self, id: str) -> int:
        """A producer with this id begins: the next epoch, in which nothing of an earlier one happens any more."""
        lane = self._lanes[id]
        self._show(lane)
        lane.open = None
        lane.epoch += 1
        return lane.epoch

    def append(self, id: str, epoch: int, content: Content, *, now: float) -> None:
        """Into a new transaction. Raises `Fenced`."""
        lane = self._current(id, epoch)
        self._show(lane)
        lane.open, lane.began = content, now

    def commit(self, id: str, epoch: int, *, lagging: bool = False) -> None:
        """Make it visible; a lagging marker shows later. Raises `Fenced`."""
        lane = self._current(id, epoch)
        content, lane.open = lane.open, None
        if content is None:
            raise Fenced(id)
        if content.sent is not None:
            self.publish(content.sent.topic, content.sent.records)
            self.out.append(content.sent)
            self.receive(content.sent)
        if content.marker is not None:
            self._supersede(content.marker.slot)
            lane.hidden = content.marker
            if not lagging:
                self._show(lane)

    def abort(self, id: str, epoch: int) -> None:
        """Roll it back. Raises `Fenced`."""
        self._current(id, epoch).open = None

    def expire(self, now: float) -> None:
        """Roll back what has been open for too long; its producer may not go on."""
        for lane in self._lanes.values():
            if lane.open is not None and lane.began + self._timeout <= now:
                lane.open = None
                lane.epoch += 1

    def publish(self, topic: str, values: Sequence[bytes]) -> None:
        """Append records outside of any transaction."""
        self.logs.setdefault(topic, []).extend(values)

    def show_all(self) -> None:
        """Markers do not lag for ever."""
        for lane in self._lanes.values():
            self._show(lane)

    def _current(self, id: str, epoch: int) -> _Lane:
        lane = self._lanes[id]
        if lane.epoch != epoch:
            raise Fenced(id)
        return lane

    def _show(self, lane: _Lane) -> None:
        if lane.hidden is not None:
            self.markers[lane.hidden.slot] = lane.hidden
            lane.hidden = None

    def _supersede(self, slot: tuple[str, int]) -> None:
        """Of two markers of a slot, Kafka keeps the one that was written later: an earlier one never shows again."""
        for lane in self._lanes.values():
            if lane.hidden is not None and lane.hidden.slot == slot:
                lane.hidden = None
