"""What the clock may do when a server of its goes away in the middle of firing, told from outside.

In flight is what was pending right before the server went, and due by the time that it was gone.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from shared.clock.rules.outcomes import OutcomeResult
from shared.clock.schedules import Accepted
from tests.chaos.test_clock_killed import Instants, expected
from tests.e2e.clocks import NAMESPACE, Receiver
from tests.e2e.house import House
from tests.waiting import until

# Longer than a confirm takes on a busy machine, and short enough to see a lease end. Half of it is trusted.
LEASE = 6.0
LEASED = {
    "CARILLON_SCHEDULER_LEASE_SECONDS": f"{LEASE:g}",
    "CARILLON_SCHEDULER_TICK_SECONDS": "0.5",
    "CARILLON_SCHEDULER_SWEEP_SECONDS": "0.5",
}
# RabbitMQ 3.10 that is killed within 2 s of a queue's creation, or more on a slow disk, has broken that queue for good.
QUEUES_WRITTEN_DOWN = 8.0
# Two clocks on one machine may differ by what their rounding differs.
_ROUNDING = timedelta(milliseconds=2)
# A server that keeps its own time since it was started may be ahead of the machine's clock, which is corrected.
_AHEAD = timedelta(milliseconds=250)


async def pending(house: House, all_: Iterable[Accepted]) -> Instants:
    """Every key and instant that is not dealt with."""
    upcoming = house.servers.store.occurrences.find_upcoming
    return {(each.schedule.key, left.due) for each in all_ for left in await upcoming(each.schedule.owner, 10_000)}


async def fewer(house: House, count: int, seconds: float = 60) -> None:
    """Wait until so many are pending at most."""

    async def are_few() -> bool:
        return await house.servers.store.occurrences.count() <= count

    await until(are_few, f"at most {count} to be pending", seconds)


class Outage:
    """A server's absence, made once the server is away: `before` is what was pending right before it.

    No process of this machine can have taken the time to be later than `gone`: what they carry of the database's clock
    is behind this one by as much as a look at it took.
    """

    def __init__(self, before: Instants) -> None:
        self.before = before
        self.gone = datetime.now(UTC)
        self._back = asyncio.get_running_loop().time()

    def is_over(self) -> None:
        """The server is there again: recovering is measured from here."""
        self._back = asyncio.get_running_loop().time()

    @property
    def since(self) -> float:
        """For how many seconds the server has been back."""
        return asyncio.get_running_loop().time() - self._back

    def check(self, receiver: Receiver) -> None:
        """Repeated is only what was in flight, and only once."""
        repeated = {(each.key, each.due) for each in receiver.all if receiver.times[each.message_id] > 1}
        print(f"{len(repeated)} of {len(receiver.times)} came again")
        assert repeated <= self.before, f"settled before, and repeated: {sorted(repeated - self.before)[:5]}"
        late = sorted(due for _, due in repeated if due > self.gone + _AHEAD)
        assert not late, f"due after {self.gone}, and repeated: {late[:5]}"
        assert set(receiver.times.values()) <= {1, 2}


def check_came(receiver: Receiver, all_: Iterable[Accepted]) -> None:
    """Nothing is lost, nothing was not asked for; each instant has one message id, and is at its first attempt."""
    wanted = expected(all_)
    came = set(receiver.instants)
    assert came == wanted, f"{len(wanted - came)} lost, {len(came - wanted)} never asked for"
    assert set(receiver.instants.values()) == {1}
    assert {each.attempt for each in receiver.all} == {1}


def check_not_early(receiver: Receiver) -> None:
    early = [(each.key, each.due, each.came) for each in receiver.all if each.came + _ROUNDING < each.due]
    assert not early, f"{len(early)} early: {early[:5]}"


async def check_nothing_counted(house: House, all_: Iterable[Accepted]) -> None:
    """No dead letter, and an outcome for each instant: fired at the first attempt."""
    assert not await house.servers.store.dead_letters.page(NAMESPACE, limit=10)
    for each in all_:
        outcomes = await house.servers.store.outcomes.latest(each.schedule.owner, 10_000)
        assert {(outcome.result, outcome.attempt) for outcome in outcomes} == {(OutcomeResult.FIRED, 1)}
        assert {(each.schedule.key, outcome.due) for outcome in outcomes} == expected([each])
