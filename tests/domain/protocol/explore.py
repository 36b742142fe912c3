"""Exploring the model: every order of events in a small world."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from shared.domain.jobs.batches import BatchStatus
from tests.domain.protocol.promises import Settling, check
from tests.domain.protocol.steps import Step, after, all_steps
from tests.domain.protocol.world import Actor, Entry, Faults, Job, Message, Promise, Rules, Violation, World


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
    rules: Rules,
    faults: Faults,
    *,
    batches: int = 0,
    devices: int = 0,
    workers: int = 2,
    planners: int = 0,
    users: int = 0,
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


def exhaust(world: World, rules: Rules, *, limit: int = 2_000_000, only: frozenset[Promise] = frozenset()) -> Explored:
    """Every world that can be reached, breadth first; from each, everything must settle.

    Stops at the first broken promise (of `only` these, where some are given); its trace is one of the shortest. What
    breaks while things settle shows the trace up to there.
    """
    parents: dict[World, tuple[World, Step] | None] = {world: None}
    settling = Settling(rules)
    todo = deque([world])
    while todo and len(parents) < limit:
        here = todo.popleft()
        if not only or Promise.NEVER in only:
            broken = verdict(only, settling.check, here)
            if broken:
                return Explored(len(parents), Found(broken, told(parents, here)))
        for step in all_steps(here, rules):
            there, broken = tried(here, rules, step, only)
            if broken:
                return Explored(len(parents), Found(broken, [*told(parents, here), step.told(here)]))
            if there not in parents:
                parents[there] = (here, step)
                todo.append(there)
    return Explored(len(parents))


def tried(world: World, rules: Rules, step: Step, only: frozenset[Promise]) -> tuple[World, str]:
    """The world after the step, and the promise that it broke; a step that cannot be made leaves the world as it is."""
    try:
        there = after(world, rules, step)
    except Violation as violation:
        return world, "" if only and violation.promise not in only else str(violation)
    return there, verdict(only, check, world, there, rules)


def verdict(only: frozenset[Promise], look: Callable[..., None], *arguments: object) -> str:
    """The broken promise, if there is one to tell of."""
    try:
        look(*arguments)
    except Violation as violation:
        return "" if only and violation.promise not in only else str(violation)
    return ""


def told(parents: dict[World, tuple[World, Step] | None], world: World) -> list[str]:
    """The steps that led here."""
    lines: list[str] = []
    while (link := parents[world]) is not None:
        world, step = link
        lines.append(step.told(world))
    return lines[::-1]
