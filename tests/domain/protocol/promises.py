"""What must hold after every step, and what must come about in the end."""

from shared.domain.jobs.batches import BatchStatus
from shared.domain.jobs.jobs import JobStatus
from tests.domain.protocol.steps import actor_steps, after
from tests.domain.protocol.world import IN_FLIGHT, Faults, Promise, Rules, Violation, World

MAX_CHORES = 60
MAX_ROUNDS = 400


def check(before: World, now: World, rules: Rules) -> None:
    """Raise `Violation` unless this step kept every promise."""
    if now.topic is not before.topic or now.entries is not before.entries:
        check_records(now, rules)
        check_chains(now, rules)
        check_plan(now)
    for old, new in zip(before.markers, now.markers, strict=True):
        if old is not None and (new is None or new[:2] < old[:2] or (new[:2] == old[:2] and new != old)):
            raise Violation(Promise.BACKWARDS, f"{old} -> {new}")
    if not now.job.open:
        check_closed(now, rules)
    if rules.takes and any(batch.attempts > rules.takes for batch in now.batches):
        raise Violation(Promise.CHURN, repr(now.batches))


def check_records(world: World, rules: Rules) -> None:
    """A part is out at most once; all of a sent batch are, the last one with its receipt; of any other one are those
    that are known to be, and perhaps one more that a lane owns."""
    for ordinal, batch in enumerate(world.batches):
        out = [(part, receipt) for other, part, receipt in world.topic if other == ordinal]
        parts = [part for part, _ in out]
        if len(set(parts)) < len(parts):
            raise Violation(Promise.TWICE, f"{ordinal}: {out}")
        if batch.status is BatchStatus.SENT and (len(out) != rules.parts or out[-1][1] != batch.receipt):
            raise Violation(Promise.UNTRUE, f"{ordinal} is sent by {batch.receipt!r}, out is {out}")
        known = list(range(batch.parts))
        owned = [[*known, batch.parts]] if batch.status is BatchStatus.SENDING else []
        if batch.status is not BatchStatus.SENT and parts not in [known, *owned]:
            raise Violation(Promise.UNTRUE, f"{ordinal} is {batch.status} with {batch.parts} parts, out is {out}")
        if (batch.status is BatchStatus.SENDING) > bool(batch.owner):
            raise Violation(Promise.UNTRUE, f"{ordinal} is sending without an owner")


def check_chains(world: World, rules: Rules) -> None:
    """A chain has at most one batch in flight."""
    for slot in range(rules.slots):
        flying = [batch for batch in world.batches[slot :: rules.slots] if batch.status in IN_FLIGHT]
        if len(flying) > 1:
            raise Violation(Promise.CROWDED, repr(flying))


def check_plan(world: World) -> None:
    """The batches lie end to end, so that every device is in one; the plan ends with the audience or a stop."""
    upto = 0
    for entry in world.entries:
        if entry.after != upto:
            raise Violation(Promise.TORN, repr(world.entries))
        upto = entry.upto
    if world.ended and upto != world.devices and world.job.status is not JobStatus.STOPPED:
        raise Violation(Promise.TORN, f"ends at {upto}")


def check_closed(world: World, rules: Rules) -> None:
    """A closed job has nothing unsettled, and a completed one has sent everything that did not fail."""
    if not world.all_settled:
        raise Violation(Promise.TOTALS, f"closed with unsettled batches: {world.batches}")
    if world.job.status is JobStatus.COMPLETED:
        done = sum(batch.upto - batch.after for batch in world.batches)
        sent = {ordinal for ordinal, part, _ in world.topic if part == rules.parts - 1}
        said = {ordinal for ordinal, batch in enumerate(world.batches) if batch.status is BatchStatus.SENT}
        if done != world.devices or sent != said:
            raise Violation(Promise.TOTALS, f"{done} of {world.devices} devices; {sent} are out, {said} are sent")


class Settling:
    """Whether everything settles once nothing fails any more, everybody runs, and a paused job is resumed.

    A fair schedule: all actors in turn, and upkeep, one chore after the other, whenever nobody else has anything to do
    (its ages see to that). Worlds that are known to end well are remembered.
    """

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._good: set[World] = set()

    def check(self, world: World) -> None:
        """Raise `Violation` unless the job closes, with everything settled, in a bounded number of steps."""
        world = world._replace(faults=Faults(chores=-1))
        passed: list[World] = []
        chores = 0
        for _ in range(MAX_ROUNDS):
            if not chores:
                if world in self._good:
                    break
                passed.append(world)
            following = self._round(world)
            if following is world:
                if not world.job.open or chores > MAX_CHORES:
                    break
                following = self._upkeep(world, chores)
                chores += 1
            world = following
        if world not in self._good:
            self._judge(world)
        self._good.update(passed)

    def _round(self, world: World) -> World:
        """One step of everybody but idle upkeep."""
        for index, actor in enumerate(world.actors):
            if actor.kind != "upkeep" or actor.state:
                world = self._act(world, index, 0)
        return world

    def _upkeep(self, world: World, turn: int) -> World:
        """The next chore, or a user's resume."""
        if world.job.status is JobStatus.PAUSED:
            return world._replace(job=world.job._replace(status=JobStatus.RUNNING))
        for index, actor in enumerate(world.actors):
            if actor.kind == "upkeep":
                world = self._act(world, index, turn)
        return world

    def _act(self, world: World, index: int, choice: int) -> World:
        options = actor_steps(world, self._rules, index)
        if not options:
            return world
        following = after(world, self._rules, options[choice % len(options)])
        check(world, following, self._rules)
        return following

    def _judge(self, world: World) -> None:
        if world.job.open or not world.all_settled:
            raise Violation(Promise.NEVER, f"{world.job}, {world.entries}")
