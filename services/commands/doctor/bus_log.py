"""The questions about the bus's log: whether it keeps what is published, and whether fan-outs read it."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from services.commands.doctor.examination import Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, warn, well
from services.commands.doctor.kafka import KAFKA, alter_topic
from services.commands.doctor.mongodb import MONGODB
from services.commands.doctor.shell import INIT, command, export
from shared.domain.positions import Position
from shared.flow.bus.pressure import count_lag
from shared.runtime.bus_settings import BusSettings
from shared.store import Store
from shared.store.bus.flushes import LogPosition
from shared.stream import Stream
from shared.stream.kafka.inspection import KafkaInspection, TopicFacts

KEPT, SIZE, CLEANUP = "retention.ms", "retention.bytes", "cleanup.policy"
FAN_OUT = command("carillon", "fanout")
_MILLISECOND = timedelta(milliseconds=1)
# Fan-outs read twice a second, and flush what they have read.
_PATIENCE_SECONDS = 3.0
_LOOK_SECONDS = 0.25

Spans = Mapping[str, tuple[int, int]]
Positions = Mapping[str, LogPosition]


class LogReading(Struct, frozen=True):
    """The beginnings and ends of the log's partitions, how far each is read, and how many are in the group that reads
    it."""

    spans: Spans
    positions: Positions
    members: int = 0

    @property
    def offsets(self) -> dict[str, int]:
        """How far each partition is read."""
        return {name: found.position.offset for name, found in self.positions.items()}

    @property
    def unread(self) -> int:
        """How many records nobody has read."""
        return count_lag(self.spans, self.offsets)


class BusLog(Examination):
    """The topic that is the log, and its readers."""

    of = "Log of the bus"

    def __init__(
        self, settings: BusSettings, store: Store, stream: Stream, inspection: KafkaInspection, servers: str
    ) -> None:
        self._settings = settings
        self._store = store
        self._stream = stream
        self._inspection = inspection
        self._servers = servers
        self.where = settings.log_topic

    async def check_topic(self) -> Opinions:
        """The log is there, as large as it was made, and can be written to."""
        return judge_topic(await self._read_topic(), self._settings)

    async def check_retention(self) -> Opinions:
        """Events are kept for as long as promised."""
        return judge_retention(await self._read_topic(), self._settings, self._servers)

    async def check_readers(self) -> Opinions:
        """Somebody reads it."""
        if not await self._store.bus_inspection.has_subscriptions():
            return well("not needed: there are no subscriptions")
        first = await self._read()
        reading = first if not first.members else await self._wait_for_progress(first)
        return judge_readers(reading, first, self._settings.group)

    async def check_positions(self) -> Opinions:
        """Positions that are noted as read are of this log, and lie in it."""
        log_id, reading = await self._inspection.read_topic_id(self._settings.log_topic), await self._read()
        return judge_positions(reading, log_id)

    async def _wait_for_progress(self, first: LogReading) -> LogReading:
        """The reading once a position has moved, or after some seconds where none does."""
        reading, waited = first, 0.0
        while reading.unread and reading.offsets == first.offsets and waited < _PATIENCE_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            waited += _LOOK_SECONDS
            positions = await self._store.bus_flushes.read_positions(list(first.spans))
            reading = LogReading(first.spans, positions, first.members)
        return reading

    async def _read(self) -> LogReading:
        # What is read is asked for last: otherwise what came in between would count as forgotten.
        spans = await self._stream.spans(self._settings.log_topic)
        members = await self._inspection.count_members(self._settings.group)
        return LogReading(spans, await self._store.bus_flushes.read_positions(list(spans)), members)

    async def _read_topic(self) -> TopicFacts | None:
        name = self._settings.log_topic
        return (await self._inspection.read_topics([name], [KEPT, SIZE, CLEANUP])).get(name)

    questions = (
        Question(
            "topic",
            "The topic `bus.log_topic` is there, with the `bus.log_partitions` that it was made with, and each has a "
            "leader. If not, nothing can be published, or fan-outs do not start.",
            check_topic,
            needs=(KAFKA,),
        ),
        Question(
            "retention",
            "It keeps events for `bus.log_days` at least, and all of them: fan-outs do not start otherwise.",
            check_retention,
            needs=(KAFKA,),
        ),
        Question(
            "readers",
            "Fan-outs are in the consumer group `bus.group`, and read the published events. Without subscriptions, no "
            "fan-out needs to.",
            check_readers,
            needs=(KAFKA, MONGODB),
        ),
        Question(
            "positions",
            "The positions of fan-outs lie within this log: it has not been replaced, has not lost its end, and has "
            "deleted no unread events (`docs/operating-the-bus.md`).",
            check_positions,
            needs=(KAFKA, MONGODB),
        ),
    )


def judge_topic(found: TopicFacts | None, settings: BusSettings) -> Opinions:
    """Whether events can be published, and read by as many fan-outs as there may be."""
    name, wanted = settings.log_topic, settings.log_partitions
    if found is None:
        return fault(f"the topic {name} is missing: nothing can be published", INIT)
    if found.leaderless:
        return fault(f"{found.leaderless} partitions of {name} have no leader: their brokers are away")
    if found.partitions != wanted:
        said = f"{name} has {found.partitions} partitions, and bus.log_partitions says {wanted}"
        # More partitions would send the events of a URL to another one, where they overtake each other.
        remedy = export("bus.log_partitions", str(found.partitions))
        return fault(f"{said}: fan-outs do not start", remedy) if found.partitions < wanted else warn(said, remedy)
    return well(f"{name} has {found.partitions} partitions")


def judge_retention(found: TopicFacts | None, settings: BusSettings, servers: str) -> Opinions:
    """Whether events are kept for as long as it is promised."""
    if found is None:
        return ()  # its own question tells that
    if KEPT not in found.settings:
        return warn(f"Kafka does not tell us {KEPT} of {found.name}: we need the right DescribeConfigs on it")
    opinions: list[Opinion] = []
    wanted, kept = timedelta(days=settings.log_days) // _MILLISECOND, int(found.settings[KEPT] or -1)
    if 0 <= kept < wanted:
        days = kept * _MILLISECOND / timedelta(days=1)
        said = f"{found.name} keeps events for {days:.3g} days, and bus.log_days says {settings.log_days:g}"
        opinions += fault(f"{said}: fan-outs do not start", alter_topic(servers, found.name, f"{KEPT}={wanted}"))
    if int(found.settings.get(SIZE) or -1) >= 0:
        said = f"{found.name} forgets what is beyond {found.settings[SIZE]} bytes: fan-outs do not start"
        opinions += fault(said, alter_topic(servers, found.name, f"{SIZE}=-1"))
    if "compact" in (found.settings.get(CLEANUP) or ""):
        said = f"{found.name} forgets events that have the same key: fan-outs do not start"
        opinions += fault(said, alter_topic(servers, found.name, f"{CLEANUP}=delete"))
    return opinions or well(f"events are kept for {settings.log_days:g} days at least")


def judge_readers(reading: LogReading, before: LogReading, group: str) -> Opinions:
    """Whether anybody reads, given what was read some moments before."""
    since = _last_read(reading.positions)
    if not reading.members:
        if reading.unread:
            return fault(f"no fan-out is in the group {group}, {reading.unread} records are unread{since}", FAN_OUT)
        return warn(f"no fan-out is in the group {group}: published events will not be read", FAN_OUT)
    if reading.unread and reading.offsets == before.offsets:
        said = f"{reading.members} are in the group {group}, and read nothing of {reading.unread} records{since}"
        return warn(f"{said}: /readyz and the log of each tell why", FAN_OUT)
    return well(f"{reading.members} in the group {group}, {reading.unread} records were unread")


def judge_positions(reading: LogReading, log_id: str) -> Opinions:
    """Whether what is noted is of this log. An empty one in the place of another has nothing that could be missed."""
    others, beyond, forgotten = 0, 0, 0
    for name, (begin, end) in reading.spans.items():
        match reading.positions.get(name):
            case LogPosition(position=Position(log=known)) if known and known != log_id:
                others += end > begin
            case LogPosition(position=Position(offset=offset)) if offset > end:
                beyond += 1
            case LogPosition(position=Position(offset=offset), flush=flush) if flush and offset < begin:
                forgotten += begin - offset
    since, opinions = _last_read(reading.positions), list[Opinion]()
    if others:
        said = f"{others} partitions are of another log than was read{since}: what was unread of that one is lost"
        opinions += fault(f"{said}, and this one is read by the next fan-out that joins", FAN_OUT)
    if beyond:
        said = f"{beyond} partitions end before what was read{since}: the log has lost its end, or was restored"
        opinions += warn(f"{said}; events may come again (bus.on_new_log), once there are some")
    if forgotten:
        opinions += fault(f"the log has deleted {forgotten} unread records{since}", FAN_OUT)
    return opinions or well("what is read lies within this log")


def _last_read(positions: Positions) -> str:
    """Since when nothing was read: chunks are ordered by the time of their flush."""
    last = max((found.order for found in positions.values()), default=0)
    return f" (the last was read at {datetime.fromtimestamp(last // 1_000, UTC):%Y-%m-%d %H:%M:%S} UTC)" if last else ""
