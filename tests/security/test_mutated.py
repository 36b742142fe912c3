"""Thousands of broken bodies over all operations that take one: no fault of the server's, nothing slow; and what was
refused has left nothing behind."""

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from tests.security.mutations import mutated
from tests.security.operations import Operation
from tests.security.stores import Database
from tests.security.target import Answer, Target
from tests.security.tenants import Tenant, Town, who_may

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.native, pytest.mark.usefixtures("judged")]

PARTS = 6
FEW_BODIES = 300
BODIES = 1_000
MOST_SECONDS = 50.0
AGAIN_SHARE = 10


@dataclass(frozen=True)
class Sent:
    """A request with a broken body, which can be repeated."""

    operation: Operation
    path: str
    body: bytes
    headers: Mapping[str, str]

    async def to(self, target: Target) -> Answer:
        seconds = min(2 * target.bounds.answer_seconds, MOST_SECONDS)
        try:
            return await target.call(self.operation.method, self.path, self.body, self.headers, seconds=seconds)
        except TimeoutError:
            raise AssertionError(f"no answer within {seconds:g} s: {self}") from None

    def __str__(self) -> str:
        return f"{self.operation} with {self.body[:500]!r}"


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
async def test_a_broken_body_is_no_fault_and_what_was_refused_leaves_nothing(
    target: Target, town: Town, api: list[Operation], database: Database, seed: int, part: int
) -> None:
    await wave(target, town, api, database, random.Random(f"{seed}/{part}"))


@pytest.mark.storm
async def test_broken_bodies_for_long(
    target: Target, town: Town, api: list[Operation], database: Database, seed: int, storm_seconds: float
) -> None:
    end, number = time.monotonic() + storm_seconds / 2, PARTS
    while time.monotonic() < end:
        await wave(target, town, api, database, random.Random(f"{seed}/{number}"))
        number += 1


async def wave(target: Target, town: Town, api: list[Operation], database: Database, rand: random.Random) -> None:
    # Several callers, so that no limit on the requests of one stands before the reading of bodies.
    tenants = [await town.tenant() for _ in range(4)]
    count = BODIES if target.judges else FEW_BODIES
    valid = database.snapshot()
    async with target.attack(f"{count:,} broken bodies"):
        refused = await sent(target, [each for each in api if each.takes_json], tenants, rand, count)
    assert len(refused) > count / 2
    assert database.faults(valid) == []
    before = database.snapshot()
    for each in rand.sample(refused, count // AGAIN_SHARE):
        answer = await each.to(target)
        assert 400 <= answer.status < 500, f"refused before, and now {answer}: {each}"
    assert before.differences(database.snapshot()) == []


async def sent(
    target: Target, api: list[Operation], tenants: list[Tenant], rand: random.Random, count: int
) -> list[Sent]:
    """Send them; those that were refused."""
    refused = []
    for number in range(count):
        operation, tenant = api[number % len(api)], tenants[number % len(tenants)]
        headers = who_may(operation, tenant)
        body = mutated(operation.valid(tenant.ids), rand)
        each = Sent(operation, operation.filled(tenant.ids), body, headers)
        answer = await each.to(target)
        assert answer.status < 500, f"{answer}: {each}"
        assert str(answer.status) in operation.statuses, f"{answer}: {each}"
        if answer.status >= 400:
            refused.append(each)
    return refused
