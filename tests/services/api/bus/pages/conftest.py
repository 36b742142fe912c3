"""Who looks at pages of the bus: people, whom a proxy names."""

from dataclasses import dataclass
from itertools import count

import pytest_asyncio

from tests.services.api.bus.native.conftest import Delivered, delivered
from tests.services.api.client import Client
from tests.services.api.conftest import House
from tests.services.worker.bus.delivering import NAMESPACE

__all__ = ["delivered"]

ABOUT = {"namespace": NAMESPACE}
_serials = count()


@dataclass
class People:
    """An operator and a viewer of `NAMESPACE`, and somebody without a role."""

    operator: Client
    viewer: Client
    stranger: Client


async def a_person(house: House, **roles: str) -> Client:
    """Somebody new with these roles over `NAMESPACE`."""
    email = f"bus{next(_serials)}@example.com"
    made = await house.admin.post("/users", {"email": email, "roles": roles})
    assert made.status == 201, made.body
    return house.admin.someone(email)


@pytest_asyncio.fixture(loop_scope="module")
async def people(delivered: Delivered) -> People:
    house, place = delivered.house, f"namespace/{NAMESPACE}"
    return People(
        operator=await a_person(house, **{place: "operator"}),
        viewer=await a_person(house, **{place: "viewer"}),
        stranger=await a_person(house),
    )
