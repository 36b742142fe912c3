"""Lives: the promises of a key, from the moment at which a content is there until it goes or gets another generation.

A content that is amended in place, around an anchor, stays the same life.
"""

from dataclasses import dataclass, field
from datetime import datetime

from shared.clock.rules.instants import offset_due
from shared.clock.rules.occurrences import Occurrence, occurrence_id, offset_id
from shared.clock.rules.schedules import Definition, Schedule
from tests.clock.made import next_instants


@dataclass
class Life:
    """One generation under one key, as it is now. Places are in the order of all steps, and instants go by their ids.
    `offsets` are all that it has had, each with its place; `ahead` are those whose instants were future then."""

    schedule: Schedule
    place: int
    ended: int | None = None
    cancelled: dict[str, int] = field(default_factory=dict)
    asked: dict[str, tuple[int, datetime]] = field(default_factory=dict)
    revived: set[str] = field(default_factory=set)
    taken_back: set[str] = field(default_factory=set)
    contents: list[Definition] = field(default_factory=list)
    offsets: dict[str, tuple[int, int]] = field(default_factory=dict)
    ahead: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._give(self.place, ())

    @property
    def definition(self) -> Definition:
        return self.schedule.definition

    def id(self, due: datetime) -> str:
        """The message id of an instant."""
        return occurrence_id(self.schedule.owner, self.schedule.generation, due)

    def knows(self, id: str, due: datetime) -> bool:
        """Whether the message of this id and instant may be one of its own."""
        return id in self.offsets or id == self.id(due)

    @property
    def promised(self) -> dict[str, datetime]:
        """Its instants, read from the definition alone. Those of a series with calendars depend on these too."""
        definition, accepted_at = self.definition, self.schedule.accepted_at
        if definition.anchor is not None:
            dues = {self._offset_id(each): self.due_at(each) for each in definition.offsets_ms}
            return {id: due for id, due in dues.items() if due is not None and (id in self.ahead or due > accepted_at)}
        if definition.recurrence is None:
            instants = [each for each in definition.instants if each > accepted_at]
        elif definition.exclude:
            instants = []
        else:
            assert definition.max_occurrences is not None
            instants = next_instants(definition.recurrence, accepted_at, definition.max_occurrences)
        return {self.id(due): due for due in instants}

    @property
    def dues(self) -> dict[str, datetime]:
        """The instants that are promised, and those that were asked for."""
        return {**self.promised, **{id: due for id, (_, due) in self.asked.items()}}

    def due_at(self, offset: int) -> datetime | None:
        return offset_due(self.definition, self.schedule.key, offset)

    def asks(self, place: int, occurrence: Occurrence) -> None:
        """A caller has it fired by hand, or tried again."""
        self.asked[occurrence.message_id] = (place, occurrence.due)
        if occurrence.due != occurrence.accepted_at:
            self.revived.add(occurrence.message_id)

    def asked_at(self, id: str) -> int:
        """The place at which a caller asked for it for the last time; 0 for one that no caller asked for."""
        return self.asked[id][0] if id in self.asked else 0

    def amend(self, place: int, schedule: Schedule) -> None:
        """The document has changed, and is of the same generation."""
        before = self.definition.offsets_ms
        self.schedule = schedule
        self._give(place, before)

    def _give(self, place: int, before: tuple[int, ...]) -> None:
        if self.definition not in self.contents:
            self.contents.append(self.definition)
        for offset in self.definition.offsets_ms:
            if offset in before:
                continue
            id, due = self._offset_id(offset), self.due_at(offset)
            self.offsets[id] = (place, offset)
            self.cancelled.pop(id, None)
            self.ahead.discard(id)
            if due is not None and due > self.schedule.accepted_at:
                self.ahead.add(id)

    def _offset_id(self, offset: int) -> str:
        return offset_id(self.schedule.owner, self.schedule.generation, offset)
