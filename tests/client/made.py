"""Schedules for the tests of the client, and what the store holds of them."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

from carillon import RabbitCallback, Schedule
from shared.clock.rules.occurrences import Occurrence
from shared.clock.rules.schedules import schedule_id
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

NAMESPACE = f"user:{ADMIN}"
QUEUE = RabbitCallback(queue="invitations", payload={"id": "42"})


def fresh_key() -> str:
    return f"k-{secrets.token_hex(6)}"


def ahead(*hours: float) -> tuple[datetime, ...]:
    now = datetime.now(UTC).replace(microsecond=0)
    return tuple(now + timedelta(hours=each) for each in hours)


def schedule(key: str = "", *instants: datetime, **fields: Any) -> Schedule:
    return Schedule(key=key, instants=instants or ahead(1, 2), **({"callback": QUEUE} | fields))


async def pending(house: House, key: str) -> list[Occurrence]:
    found = await house.store.schedules.get(schedule_id(NAMESPACE, key))
    assert found is not None
    return await house.store.occurrences.find_upcoming(found.owner, 100)
