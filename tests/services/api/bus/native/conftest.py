"""A worker that delivers, to a real receiver, what subscriptions of `NAMESPACE` get; and those who may ask about it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest_asyncio

from tests.receivers import receiver
from tests.services.api.client import Client
from tests.services.api.conftest import House
from tests.services.worker.bus.delivering import NAMESPACE, Delivering, delivering


@dataclass
class Delivered:
    """What one test sees. All clients ask about `NAMESPACE`, but for the stranger."""

    house: House
    bus: Delivering
    operator: Client
    viewer: Client
    stranger: Client

    @staticmethod
    def about(path: str, *query: str) -> str:
        """A path below `/bus` that is asked of `NAMESPACE`."""
        return f"/bus/{path}?{'&'.join([f'namespace={NAMESPACE}', *query])}"


async def with_role(house: House, role: str) -> Client:
    made = await house.admin.post("/tokens", {"name": role, "roles": {f"namespace/{NAMESPACE}": role}})
    assert made.status == 201, made.body
    return house.admin.service(made.json["token"])


@pytest_asyncio.fixture(loop_scope="module")
async def delivered(house: House, tmp_path: Path) -> AsyncIterator[Delivered]:
    async with receiver(tmp_path / "arrivals") as at, delivering(house.store, at, broker=house.broker) as bus:
        operator, viewer = await with_role(house, "operator"), await with_role(house, "viewer")
        yield Delivered(house, bus, operator, viewer, await house.service())
