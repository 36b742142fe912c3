"""How long what a killed scheduler held is late, when another one runs."""

import asyncio
import signal
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from services.embedded.processes import free_port
from shared.runtime.settings import SchedulerSettings
from tests.bench.arrivals import Arrival, Queue, queue_of
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import Sizes, clock_house, fill, key
from tests.bench.scraped import scraped, total
from tests.e2e.house import House, Process
from tests.waiting import until

_START_SECONDS = 10.0
_LONGEST_SECONDS = 120.0
_KILLED_AFTER = 0.2  # of the entries
_IN_FLIGHT = 4_000  # four groups of 1,000


class Crash(Struct, frozen=True):
    """Seconds from the kill to the last first message of an entry, how many entries had come before it, and repeats."""

    seconds: float
    before: int
    repeats: int


async def measure(place: Place, sizes: Sizes) -> list[Measured]:
    """One scheduler holds it all and is killed with SIGKILL while it fires; another one runs since before that."""
    crashes = [await _crash(place, sizes.crash) for _ in range(place.repeat)]
    lease = SchedulerSettings().lease_seconds
    bound = Target(lease + 1, at_most=True)
    figures = [
        Figure("from the kill until everything is out", [crash.seconds for crash in crashes], "s", bound),
        Figure("messages before the kill", [crash.before for crash in crashes]),
        Figure("messages that came twice", [crash.repeats for crash in crashes]),
    ]
    note = (
        f"{sizes.crash:,} entries due at one moment, a lease of {lease:g} s. Checked: every key came, none early, "
        f"under one message id, and no more repeats than a process has in flight ({_IN_FLIGHT:,})."
    )
    return [Measured("recovery", figures, [note])]


async def _crash(place: Place, entries: int) -> Crash:
    async with clock_house(place) as house, queue_of(house) as queue:
        now = await house.servers.time.now()
        due = (now + timedelta(seconds=_START_SECONDS)).replace(microsecond=0)
        await fill(house, entries, lambda _: due, prefix="crash-")
        victim = await _holder(house, entries)
        other = asyncio.create_task(house.start("scheduler"))
        async with queue.consumed() as arrivals:
            killed = await _killed(house, victim, arrivals, round(entries * _KILLED_AFTER))
            before = len(arrivals)
            await other
            await _all_out(house, queue, arrivals, entries)
        return _judged(arrivals, entries, due, killed, before)


async def _holder(house: House, entries: int) -> Process:
    """A scheduler, once it has claimed everything."""
    port = free_port()
    process = await house.start("scheduler", CARILLON_HEALTH_PORT=str(port))

    async def holds_all() -> bool:
        await asyncio.sleep(0.1)
        return total(await scraped(port), "carillon_occurrences_claimed_total") >= entries

    await until(holds_all, "one scheduler to claim everything", 30)
    return process


async def _killed(house: House, victim: Process, arrivals: Sequence[Arrival], after: int) -> datetime:
    """Kill it as soon as so many messages are out: when that was."""
    await until(lambda: len(arrivals) >= after, f"{after} messages", 30)
    victim.send(signal.SIGKILL)
    return house.servers.time.reckon()


async def _all_out(house: House, queue: Queue, arrivals: Sequence[Arrival], entries: int) -> None:
    async def all_came() -> bool:
        await asyncio.sleep(0.1)
        return len({each.message_id for each in arrivals}) >= entries

    await until(all_came, f"{entries} messages", _LONGEST_SECONDS)
    await asyncio.sleep(1)  # what comes twice comes at about the same time
    if await queue.depth():
        raise Wrong("messages lie in the queue though it is consumed")


def _judged(arrivals: Sequence[Arrival], entries: int, due: datetime, killed: datetime, before: int) -> Crash:
    times = Counter(each.key for each in arrivals)
    firsts: dict[str, datetime] = {}
    for each in arrivals:
        firsts.setdefault(each.message_id, each.at)
    repeats = len(arrivals) - len(firsts)
    if set(times) != {key("crash-", n) for n in range(entries)} or len(firsts) != entries:
        raise Wrong(f"{len(times):,} of {entries:,} keys under {len(firsts):,} message ids")
    if min(firsts.values()) < due:
        raise Wrong("a message came before it was due")
    if repeats > _IN_FLIGHT or before >= entries:
        raise Wrong(f"{repeats:,} messages came twice, {before:,} were out before the kill")
    return Crash((max(firsts.values()) - killed).total_seconds(), before, repeats)
