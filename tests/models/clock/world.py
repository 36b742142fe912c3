"""The world of the model: the real store, flow and firing, under a time and with a target that the model sets."""

import itertools
import math
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

from services.scheduler.deliver import Deliveries, InHand
from services.scheduler.fire import Fire
from services.scheduler.hold import Held, Hold
from services.scheduler.sweep import Sweep
from shared.clock.anchors import AnchorFlow
from shared.clock.calendars import CalendarFollowing
from shared.clock.rules.calendars import Calendar
from shared.clock.rules.instants import find_upcoming, offset_due
from shared.clock.rules.occurrences import PARKED, SHARDS, Occurrence, OccurrenceKind
from shared.clock.rules.outcomes import DeadLetter, Outcome
from shared.clock.rules.schedules import Schedule, ScheduleState, schedule_id
from shared.clock.schedules import ScheduleFlow
from shared.clock.settlement import Settlement
from shared.clock.store_occurrences import Visible, fresh_token
from shared.drivers.kafka import Stream
from shared.drivers.rabbitmq import Broker
from shared.store import Store
from shared.time import DatabaseTime
from tests.models.clock.ledger import MARGIN, OWNER, Firing, Ledger
from tests.models.clock.target import Answer, Sent, Target
from tests.models.clock.walks import ALL, Fate, Walk, gated

KEYS = ("a", "b")
CALENDAR = "days"
SCHEDULERS = (0, 1, 2)
START = datetime(2030, 1, 1, 12, 0, 0, 337_000, tzinfo=UTC)
TICK = timedelta(seconds=1)
LEASE = timedelta(seconds=30)
LOOKAHEAD = 2 * TICK
MISFIRE_AFTER = timedelta(seconds=60)
IN_VAIN = 21  # claims that make a suspect
_ROUNDS = 40
_DECISIONS = frozenset(f"schedules.{verb}" for verb in ("add", "replace", "amend", "set_state", "remove", "finish"))
_TAKES_FROM_HOLDERS = frozenset({"occurrences.let_go", "occurrences.remove"})

Pace = tuple[int, Fate]
AT_ONCE: Pace = (ALL, Fate.GOES_ON)


class SetTime(DatabaseTime):
    """The database's time, where the model sets it: never at a whole second, where instants are."""

    def __init__(self) -> None:
        self._now = START

    async def now(self) -> datetime:
        return self._now

    async def measure(self) -> None:
        pass

    def reckon(self) -> datetime:
        return self._now

    def advance(self, seconds: int) -> None:
        self._now += timedelta(seconds=seconds)


class World:
    """Everything that outlives a process, the processes, and the ledger."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.time = SetTime()
        self._moments = [START]
        self.ledger = Ledger(KEYS, self._moments.__getitem__)
        self.walks: list[Walk] = []
        self.holds = {scheduler: Hold(1_000) for scheduler in SCHEDULERS}
        self.suspects = {scheduler: Hold(1_000) for scheduler in SCHEDULERS}
        self._shards = itertools.cycle(range(SHARDS))

    async def clear(self) -> None:
        """Forget what an earlier world left."""
        for name in ("schedules", "occurrences", "outcomes", "dead_letters", "calendars"):
            await self.store._database[name].delete_many({})

    def count(self) -> int:
        """The next place in the order of all steps."""
        self._moments.append(self.time.reckon())
        return self._place

    @property
    def _place(self) -> int:
        return len(self._moments) - 1

    @property
    def under_way(self) -> list[Walk]:
        """Walks that stand somewhere."""
        return [walk for walk in self.walks if not walk.over]

    @property
    def excluding(self) -> list[str]:
        """The keys that exclude the days of the calendar."""
        lives = [(key, self.ledger.life(key)) for key in KEYS]
        return [key for key, life in lives if life is not None and life.definition.exclude]

    @property
    def anchored(self) -> list[str]:
        """The keys that have an anchor and are not finished."""
        documents = [(key, self.ledger.document(key)) for key in KEYS]
        return [key for key, found in documents if found and found.definition.anchor and not found.is_finished]

    async def call(self, name: str, operation: Callable[[ScheduleFlow], Coroutine[Any, Any, Any]], pace: Pace) -> Walk:
        """A caller asks for something, and an API process does it."""
        walk = Walk(name, "api", self.count)
        flow = ScheduleFlow(self._seen(walk), self.time)
        return await self._started(walk, lambda _: operation(flow), pace)

    async def sweep(self, pace: Pace) -> Walk:
        walk = Walk("sweep", "api", self.count)
        sweep = Sweep(self._seen(walk), self.time, self._shards)
        return await self._started(walk, lambda _: sweep.run_once(), pace)

    async def move(self, key: str, anchor: datetime, pace: Pace) -> Walk:
        walk = Walk("move", "api", self.count)
        anchors = AnchorFlow(self._seen(walk), self.time)
        return await self._started(walk, lambda _: anchors.move(schedule_id("ns", key), anchor), pace)

    async def put_calendar(self, dates: Sequence[str], timezone: str, pace: Pace) -> Walk:
        walk = Walk("calendar", "api", self.count)
        # No two changes are of one moment.
        moment = self.time.reckon() + timedelta(milliseconds=self._place)
        calendar = Calendar(
            id=schedule_id("ns", CALENDAR),
            namespace="ns",
            name=CALENDAR,
            timezone=timezone,
            dates=tuple(sorted(dates)),
            updated_at=moment,
        )
        store = self._seen(walk)
        return await self._started(walk, lambda _: store.calendars.put(calendar), pace)

    async def follow(self, pace: Pace) -> Walk:
        """As the schedulers have occurrences follow anchors and calendars."""
        walk = Walk("follow", "api", self.count)
        store = self._seen(walk)

        async def follow(_: Walk) -> None:
            await AnchorFlow(store, self.time).align_all()
            await CalendarFollowing(store, self.time).run_once()

        followed = await self._started(walk, follow, pace)
        if followed.smooth and not self.under_way:
            self.ledger.broken += await self._astray()
        return followed

    async def claim(self, scheduler: int, pace: Pace) -> Walk:
        """As the clock's tick."""
        walk = Walk("claim", f"scheduler {scheduler}", self.count)
        return await self._started(walk, lambda walk: self._claim(walk, scheduler), pace)

    async def fire(self, scheduler: int, answers: Sequence[Answer], pace: Pace) -> Walk | None:
        """As the clock does with what it holds and is due: a suspect alone."""
        due = self._due(self.holds[scheduler], 500) or self._due(self.suspects[scheduler], 1)
        if not due:
            return None
        walk = Firing("fire", f"scheduler {scheduler}", self.count)
        walk.fires = due
        firing = self._firing(walk, answers, due)
        return await self._started(walk, lambda _: firing.fire(due, trusted_until=math.inf), pace)

    async def stop(self, scheduler: int) -> None:
        """A scheduler ends in good order: it gives back what it holds."""
        held = [*self.holds[scheduler].clear(), *self.suspects[scheduler].clear()]
        await self.store.occurrences.release([each.occurrence for each in held])

    async def crash(self, scheduler: int) -> None:
        """A scheduler is killed."""
        self.holds[scheduler].clear()
        self.suspects[scheduler].clear()
        for walk in self.under_way:
            if walk.process == f"scheduler {scheduler}":
                await walk.die()

    async def claim_in_vain(self) -> None:
        """One process after the other claims all that is visible, and is killed before it fires."""
        visible = {"visible_at": {"$lte": self.time.reckon() + LOOKAHEAD}}
        await self.store._database["occurrences"].update_many(visible, {"$inc": {"claims": IN_VAIN}})

    async def go(self, walk: Walk, pace: Pace) -> None:
        await walk.go(*pace)

    async def pending(self) -> list[Occurrence]:
        return [each for each in await self._occurrences() if each.visible_at != PARKED]

    async def letters(self) -> list[DeadLetter]:
        return await self.store.dead_letters.page("ns", limit=1_000)

    async def outcomes(self) -> list[Outcome]:
        found = [await self.store.outcomes.latest(f"schedule/ns/{key}", 10_000) for key in KEYS]
        return [each for some in found for each in some]

    async def drain(self) -> None:
        """The end of the world: all is well again, and time goes on until nothing is left."""
        for key in KEYS:
            document = self.ledger.document(key)
            if document is not None and document.state is ScheduleState.PAUSED:
                await self.call("resume", partial(_resumed, document.id), AT_ONCE)
        for turn in range(_ROUNDS):
            self.time.advance(max(120 * (1 + turn), await self._wait_seconds()))
            for _ in range(1 if turn else SHARDS):
                await self.sweep(AT_ONCE)
            await self.follow(AT_ONCE)
            await self.claim(0, AT_ONCE)
            while await self.fire(0, [Answer.CONFIRMED], AT_ONCE):
                pass
            if not await self.pending() and all(self._finished(key) for key in KEYS):
                return

    async def _occurrences(self) -> list[Occurrence]:
        found = [await self.store.occurrences.find_upcoming(f"{OWNER}{key}", 1_000) for key in KEYS]
        return [each for some in found for each in some]

    async def _wait_seconds(self) -> int:
        """Until the first occurrence fires, at a whole second."""
        moments = [each.fires_at for each in await self.pending()]
        return math.ceil((min(moments) - self.time.reckon()).total_seconds()) if moments else 0

    async def _astray(self) -> list[str]:
        """The occurrences that are not where anchors and calendars put them, though no process holds them."""
        documents = [(each, self.ledger.document(each.owner.removeprefix(OWNER))) for each in await self._occurrences()]
        return [
            f"{schedule.key} at {each.due:%d %H:%M:%S.%f} has not followed: {each}"
            for each, schedule in documents
            if schedule is not None and schedule.generation == each.generation and not each.token
            if self._is_astray(each, schedule)
        ]

    def _is_astray(self, occurrence: Occurrence, schedule: Schedule) -> bool:
        definition, key, due = schedule.definition, schedule.key, occurrence.due
        now = self.time.reckon()
        if occurrence.kind is OccurrenceKind.OFFSET:
            # One that is claimed soon follows then.
            is_soon = occurrence.visible_at <= now + LOOKAHEAD
            return not is_soon and offset_due(definition, key, occurrence.offset_ms) not in {None, due}
        if occurrence.kind is not OccurrenceKind.SERIES or not definition.exclude or due <= now:
            return False
        upcoming = find_upcoming(definition, key, now, self.ledger.days(), occurrence.passed)
        assert upcoming is not None
        return due > upcoming.at

    def _finished(self, key: str) -> bool:
        document = self.ledger.document(key)
        return document is None or document.state is ScheduleState.FINISHED

    async def _started(self, walk: Walk, operation: Callable[[Walk], Coroutine[Any, Any, Any]], pace: Pace) -> Walk:
        self.walks.append(walk)
        walk.start(operation)
        await walk.go(*pace)
        return walk

    def _due(self, hold: Hold, most: int) -> list[Occurrence]:
        now = self.time.reckon()
        hold.take_expired(now.timestamp())
        due = hold.due(now, most, 2**20)
        return [held.occurrence for held in due if now.timestamp() < held.trusted_until]

    async def _claim(self, walk: Walk, scheduler: int) -> None:
        store = self._seen(walk)
        until = self.time.reckon() + LOOKAHEAD
        heads = await store.occurrences.heads(Visible(until))
        for shard in sorted(heads.shards or ()) if heads else ():
            now = self.time.reckon()
            token = fresh_token()
            count = await store.occurrences.claim(shard, token, Visible(until), leased_until=now + LEASE + LOOKAHEAD)
            page = await store.occurrences.read(token, limit=1_000) if count else []
            for occurrence in page:
                hold = (self.suspects if occurrence.is_suspect else self.holds)[scheduler]
                hold.add(Held(occurrence, (now + LEASE - MARGIN).timestamp()))

    def _firing(self, walk: Firing, answers: Sequence[Answer], due: list[Occurrence]) -> Fire:
        store = self._seen(walk, due)
        settlement = Settlement(store, tick=TICK)

        def hear(sent: Sent) -> None:
            if any(each.is_suspect for each in due) and walk.at("occurrences.begin") is None:
                self.ledger.broken.append(f"{walk.name}: an attempt of the suspect {sent.id} was not begun")
            self.ledger.hear(self.count(), walk, self.time.reckon(), sent)

        broker = cast("Broker", Target(answers, walk.stepped, hear))
        nothing = cast("Any", None)
        deliveries = Deliveries(
            store,
            broker,
            cast("Stream", nothing),
            settlement,
            call_lease=LEASE,
            waiting_calls=1_000,
            in_hand=InHand(store, most=1_000, lease_seconds=LEASE.total_seconds()),
        )
        return Fire(
            store,
            self.time,
            deliveries,
            settlement,
            {},
            tick=TICK,
            misfire_after=MISFIRE_AFTER,
            work_seconds=1,
        )

    def _seen(self, walk: Walk, fires: Sequence[Occurrence] = ()) -> Store:
        async def before(step: str, first: Any) -> None:
            if step == "occurrences.begin":
                self.ledger.begins(walk, first)
            elif isinstance(walk, Firing):
                await self._before_settling(walk, fires, step, first)
            elif step == "occurrences.add":
                self.ledger.asks(self._place, [each for each in first if each.kind is OccurrenceKind.ASKED])
            elif step == "occurrences.remove" and walk.at("schedules.amend") is None:
                self.ledger.takes_back(self._place, walk, first)
            elif step == "calendars.put":
                self.ledger.see_calendar(self._place, first)

        async def after(step: str) -> None:
            if step in _DECISIONS:
                found = [await self.store.schedules.get(f"ns/{key}") for key in KEYS]
                self.ledger.see(self._place, {each.key: each for each in found if each is not None})
            elif step in _TAKES_FROM_HOLDERS:
                self.ledger.takes_from_holders(self._place)

        return gated(self.store, walk, before, after)

    async def _before_settling(self, walk: Firing, fires: Sequence[Occurrence], step: str, first: Any) -> None:
        if walk.at("target.deliver") is None:
            return
        if walk.stale is None:
            walk.stale = await self._lost(fires)
        match step:
            case "dead_letters.add":
                self.ledger.settles(walk, step, [each.id for each in first])
            case "occurrences.add":
                self.ledger.settles(walk, step, [each.message_id for each in first])
            case _:
                pass

    async def _lost(self, claimed: Sequence[Occurrence]) -> frozenset[str]:
        """The messages of those that are gone or claimed by somebody else."""
        query = {"_id": {"$in": [each.id for each in claimed]}}
        found = await self.store._database["occurrences"].find(query, {"token": 1}).to_list()
        tokens = {each["_id"]: each.get("token") for each in found}
        return frozenset(each.message_id for each in claimed if tokens.get(each.id) != each.token)


async def _resumed(id: str, flow: ScheduleFlow) -> None:
    await flow.resume(id)
