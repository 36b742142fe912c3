"""Every order of events in small worlds: two batches of one chain, two workers, upkeep, and a fault or two.

`floor` is a bit under the number of worlds that there were when the test was written, so that an exploration that
shrinks by accident is noticed.
"""

from typing import NamedTuple

import pytest

from tests.domain.protocol.explore import exhaust, start
from tests.domain.protocol.world import Faults, Promise, Rules

UNSENT = frozenset(Promise) - {Promise.NEVER}  # what can be promised where there is no worker


class Scene(NamedTuple):
    """Who is there and what may go wrong."""

    name: str
    floor: int
    faults: Faults
    batches: int = 2
    devices: int = 0
    workers: int = 2
    planners: int = 0
    users: int = 0
    rules: Rules = Rules()


SCENES = (
    Scene("nothing fails", 100, Faults()),
    Scene("a worker dies, upkeep looks", 70_000, Faults(crash=1, chores=1)),
    Scene("a stopped worker loses its message and its transaction", 6_000, Faults(cut=1, expire=1)),
    Scene("a reply is lost, upkeep looks", 30_000, Faults(silent=1, chores=1)),
    Scene("two replies are lost", 150, Faults(silent=2), batches=1),
    Scene("a reply is lost, and a worker", 1_100, Faults(silent=1, crash=1), batches=1),
    Scene("a marker shows late, a worker dies", 4_000, Faults(lag=1, crash=1)),
    Scene("the broker loses a message", 5_000, Faults(purge=1, chores=1)),
    Scene("a message comes twice, a record is refused", 11_000, Faults(double=1, refuse=1)),
    Scene("pause, resume, stop", 13_000, Faults(clicks=2, chores=1), workers=1, users=1),
    Scene("pause, resume, stop, and the worker dies", 6_000, Faults(clicks=2, crash=1), workers=1, users=1),
    Scene("two chains", 6_000, Faults(crash=1), rules=Rules(slots=2)),
    Scene(
        "a lost lane's worker recovers", 13_000, Faults(double=1, silent=1), batches=1, rules=Rules(self_recovery=True)
    ),
    Scene("attempts run out", 4_500, Faults(crash=1, double=1), batches=1, rules=Rules(attempts=1)),
    Scene("two planners", 18_000, Faults(double=1), batches=0, devices=3, workers=0, planners=2),
    Scene("two planners, one dies", 24_000, Faults(double=1, crash=1), batches=0, devices=2, workers=0, planners=2),
    Scene(
        "a job stopped in mid-plan",
        15_000,
        Faults(clicks=1, chores=2),
        batches=0,
        devices=2,
        workers=0,
        planners=1,
        users=1,
    ),
    Scene("parts: nothing fails", 100, Faults(), rules=Rules(parts=2)),
    Scene("parts: a worker dies, upkeep looks", 22_000, Faults(crash=1, chores=1), batches=1, rules=Rules(parts=2)),
    Scene("parts: a worker dies, and another", 8_000, Faults(crash=2), batches=1, rules=Rules(parts=3)),
    Scene(
        "parts: a message comes twice, a reply is lost",
        1_000,
        Faults(double=1, silent=1),
        batches=1,
        rules=Rules(parts=2),
    ),
    Scene("parts: a marker shows late, a worker dies", 1_000, Faults(lag=1, crash=1), batches=1, rules=Rules(parts=2)),
    Scene("parts: a stopped worker loses its message", 1_000, Faults(cut=1, expire=1), batches=1, rules=Rules(parts=3)),
    Scene("parts: a record is refused", 1_000, Faults(double=1, refuse=1), batches=1, rules=Rules(parts=2)),
    Scene(
        "parts: pause, resume, stop",
        1_000,
        Faults(clicks=2, chores=1),
        batches=1,
        workers=1,
        users=1,
        rules=Rules(parts=2),
    ),
    Scene("healthy lanes are left alone", 10_000, Faults(chores=2), rules=Rules(patient=True)),
    Scene("one take a message", 500, Faults(double=1), batches=1, rules=Rules(takes=2)),
    Scene("one take a message, recovering", 800, Faults(double=1), batches=1, rules=Rules(takes=2, self_recovery=True)),
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_every_order_of_events_keeps_the_promises(scene: Scene) -> None:
    world = start(
        scene.rules,
        scene.faults,
        batches=scene.batches,
        devices=scene.devices,
        workers=scene.workers,
        planners=scene.planners,
        users=scene.users,
    )
    seen, found = exhaust(world, scene.rules, only=frozenset() if scene.workers else UNSENT)
    print(f"{scene.name}: {seen} worlds")
    assert found is None, str(found)
    assert seen >= scene.floor
