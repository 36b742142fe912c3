"""Exploring the model: every order of events of a small world, or random orders of a larger one."""

import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from shared.domain.batches import BatchStatus
from tests.domain.protocol.promises import Settling, check
from tests.domain.protocol.steps import OUTSIDE, Step, actor_steps, after, all_steps, fault_steps
from tests.domain.protocol.world import Actor, Entry, Faults, Job, Message, Rules, Violation, World


class Found(NamedTuple):
    """A counterexample: the broken promise and how it comes to that."""

    promise: str
    trace: list[str]

    def __str__(self) -> str:
        return "\n".join([self.promise, *self.trace])


class Explored(NamedTuple):
    """How many different worlds were seen (or, at random, steps taken), and what was found."""

    seen: int
    found: Found | None = None


def start(
    rules: Rules, *, batches: int = 0, devices: int = 0, workers: int = 2, planners: int = 0, users: int = 0, faults: Faults
) -> World:
    """A running job: planned and fed, or, with `devices`, yet to be planned."""
    kinds = ["worker"] * workers + ["planner"] * planners + ["upkeep"] + ["user"] * users
    heads = min(batches, rules.slots)
    queued = [Entry(n, n + 1, BatchStatus.QUEUED, turn=1) for n in range(heads)]
    planned = [Entry(n, n + 1) for n in range(heads, batches)]
    end = [Entry(batches, batches, None)] if batches else []
    messages = [Message("send", n, 1) for n in range(heads)] or [Message("plan")]
    return World(
        Job(),
        (*queued, *planned, *end),
        tuple(messages),
        tuple(Actor(kind, lane=f"{kind[0]}{index}.0") for index, kind in enumerate(kinds)),  # type: ignore[arg-type]
        (None,) * rules.slots,
        devices or batches,
        faults,
    )


def exhaust(world: World, rules: Rules, *, limit: int = 2_000_000, ignore: frozenset[str] = frozenset()) -> Explored:
    """Every world that can be reached, breadth first; from each, everything must settle.

    Stops at the first broken promise that is not ignored; its trace is one of the shortest.
    """
    parents: dict[World, tuple[World, Step] | None] = {world: None}
    settling = Settling(rules)
    todo = deque([world])
    while todo and len(parents) < limit:
        here = todo.popleft()
        broken = broken_by(lambda: settling.check(here), ignore)
        if broken:
            return Explored(len(parents), Found(broken, told(parents, here)))
        for step in all_steps(here, rules):
            try:
                there = after(here, rules, step)
                broken = broken_by(lambda: check(here, there, rules), ignore)
            except Violation as violation:
                broken, there = str(violation), here
            if broken:
                return Explored(len(parents), Found(broken, [*told(parents, here), step.told(here)]))
            if there not in parents:
                parents[there] = (here, step)
                todo.append(there)
    return Explored(len(parents))


def broken_by(look: Callable[[], None], ignore: frozenset[str]) -> str:
    """The broken promise, if there is one to tell of."""
    try:
        look()
    except Violation as violation:
        return "" if violation.promise in ignore else str(violation)
    return ""


def told(parents: dict[World, tuple[World, Step] | None], world: World) -> list[str]:
    """The steps that led here."""
    lines: list[str] = []
    while (link := parents[world]) is not None:
        world, step = link
        lines.append(step.told(world))
    return lines[::-1]


SLEEPY = 0.03
TROUBLE = 0.06


def stroll(world: World, rules: Rules, seed: int, *, length: int = 400, ignore: frozenset[str] = frozenset()) -> Explored:
    """One random order of events, then the promise that everything settles; the same seed takes the same way.

    Actors differ in speed, from time to time others are the slow ones, and a slow one hardly moves: so it stops for long
    at any step, and wakes up when the others are far ahead.
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
        try:
            before, world = world, after(world, rules, step)
            check(before, world, rules)
        except Violation as violation:
            if violation.promise not in ignore:
                return Explored(len(trace), Found(str(violation), trace))
            if violation.promise not in ignore or before is world:
                break
    broken = broken_by(lambda: Settling(rules).check(world), ignore)
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
            usual = [step for step in options if not str(step.outcome).startswith(("reply lost", "lagging", "refused"))]
            return chance.choice(options) if chance.random() < TROUBLE * 2 else chance.choice(usual)
        indexes.remove(index)
    return None
