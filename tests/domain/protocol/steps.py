"""All that can happen next: a step of an actor, or a fault."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.domain.protocol.automaton import automaton
from tests.domain.protocol.effects import applied, outcomes, perform, released, spend
from tests.domain.protocol.transactions import ended, fenced, shown, with_actor, with_new_lane
from tests.domain.protocol.world import Rules, World

OUTSIDE = -1


class Step(NamedTuple):
    """An actor's operation and how it comes out, or a fault and whom it strikes (actor OUTSIDE, or the one struck)."""

    actor: int
    what: Any
    outcome: Any

    def told(self, world: World) -> str:
        """One line of a trace."""
        who = "outside" if self.actor == OUTSIDE else f"{world.actors[self.actor].kind} {self.actor}"
        return f"{who}: {self.what} -> {self.outcome}"


def all_steps(world: World, rules: Rules) -> list[Step]:
    """Everything that can happen next."""
    acts = [step for index in range(len(world.actors)) for step in actor_steps(world, rules, index)]
    return [*acts, *fault_steps(world)]


def actor_steps(world: World, rules: Rules, index: int) -> list[Step]:
    """What this actor can do next: nothing while it waits, several things where the outcome is open."""
    actor = world.actors[index]
    wants = automaton(actor.kind, rules).wants(actor.state)
    return [Step(index, wants, outcome) for outcome in outcomes(world, rules, wants)]


def fault_steps(world: World) -> Iterator[Step]:
    """Everything that can go wrong next, and what is still on its way."""
    faults = world.faults
    for index, actor in enumerate(world.actors):
        if faults.crash and actor.state:
            yield Step(index, "crash", None)
        if faults.cut and actor.held is not None and not actor.cut:
            yield Step(index, "cut", None)
    for message in set(world.messages):
        if faults.purge:
            yield Step(OUTSIDE, "purge", message)
        if faults.double:
            yield Step(OUTSIDE, "double", message)
    for lane in world.lanes:
        if faults.expire and lane.content:
            yield Step(OUTSIDE, "expire", lane.id)
        if lane.asked:
            yield Step(OUTSIDE, "late commit", lane.id)
        if lane.hidden:
            yield Step(OUTSIDE, "show", lane.id)
    for write in set(world.late):
        yield Step(OUTSIDE, "late write", write)


def after(world: World, rules: Rules, step: Step) -> World:
    """The world after the step."""
    if isinstance(step.what, str):
        return struck(world, rules, step)
    world, reply = perform(world, rules, step.actor, step.what, step.outcome)
    actor = world.actors[step.actor]
    return with_actor(world, step.actor, actor._replace(state=automaton(actor.kind, rules).advance(actor.state, reply)))


def struck(world: World, rules: Rules, step: Step) -> World:
    """The world after a fault, or after something late."""
    match step.what:
        case "late commit":
            return ended(world, world.lane(step.outcome), commit=True)
        case "show":
            return shown(world, step.outcome)
        case "late write":
            return applied(world._replace(late=without(world.late, step.outcome)), step.outcome)[0]
        case _:
            return failed(spend(world, step.what), rules, step)


def failed(world: World, rules: Rules, step: Step) -> World:
    """The world after a fault."""
    match step.what:
        case "crash":
            return crashed(world, rules, step.actor)
        case "cut":
            return with_actor(released(world, step.actor), step.actor, world.actors[step.actor]._replace(cut=True))
        case "purge":
            return world._replace(messages=without(world.messages, step.outcome))
        case "double":
            return world._replace(messages=tuple(sorted((*world.messages, step.outcome))))
        case "expire":
            return fenced(world, step.outcome)
        case _:
            raise ValueError(step)


def crashed(world: World, rules: Rules, index: int) -> World:
    """The process is gone with its lane and starts anew; its message is the broker's again."""
    world = with_new_lane(released(world, index), rules, index)
    return with_actor(world, index, world.actors[index]._replace(state=0))


def without(items: tuple[Any, ...], item: Any) -> tuple[Any, ...]:
    """The tuple with one of these items fewer."""
    index = items.index(item)
    return (*items[:index], *items[index + 1 :])
