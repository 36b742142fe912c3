"""Exploring the model: random orders of events in a larger world."""

import random

from tests.domain.protocol.effects import LAGGING, LOSSES
from tests.domain.protocol.explore import Explored, Found, tried, verdict
from tests.domain.protocol.operations import REFUSED
from tests.domain.protocol.promises import Settling
from tests.domain.protocol.steps import Step, actor_steps, fault_steps
from tests.domain.protocol.world import Rules, World

SLEEPY = 0.03
TROUBLE = 0.06
UNUSUAL = {*LOSSES, LAGGING, REFUSED}


def stroll(world: World, rules: Rules, seed: int, *, length: int = 400) -> Explored:
    """One random order of events, then the promise that everything settles; the same seed takes the same way.

    Actors differ in speed, from time to time others are the slow ones, and a slow one hardly moves: so it stops for
    long at any step, and wakes up when the others are far ahead.
    """
    chance = random.Random(seed)
    pace = speeds(world, chance)
    trace: list[str] = []
    for _ in range(length):
        if chance.random() < SLEEPY:
            pace = speeds(world, chance)
        step = pick(world, rules, chance, pace)
        if step is None:
            break
        trace.append(step.told(world))
        world, broken = tried(world, rules, step, frozenset())
        if broken:
            return Explored(len(trace), Found(broken, trace))
    broken = verdict(frozenset(), Settling(rules).check, world)
    return Explored(len(trace), Found(broken, trace) if broken else None)


def speeds(world: World, chance: random.Random) -> list[float]:
    """How likely each actor is to be the next."""
    return [chance.choice((0.01, 1, 1)) for _ in world.actors]


def pick(world: World, rules: Rules, chance: random.Random, pace: list[float]) -> Step | None:
    """The next step, by chance; None where nothing can happen any more."""
    if chance.random() < TROUBLE:
        troubles = list(fault_steps(world))
        if troubles:
            return chance.choice(troubles)
    indexes = list(range(len(world.actors)))
    while indexes:
        index = chance.choices(indexes, [pace[index] for index in indexes])[0]
        options = actor_steps(world, rules, index)
        if options:
            usual = [step for step in options if step.outcome not in UNUSUAL]
            return chance.choice(options if chance.random() < 2 * TROUBLE else usual)
        indexes.remove(index)
    return None
