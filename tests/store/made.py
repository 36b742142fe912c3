"""What tests of stored things begin with."""

import uuid
from typing import Any

from shared.domain.jobs import Job
from shared.domain.records import APNS
from shared.store import Store


def a_job(**fields: Any) -> Job:
    """A job of its own."""
    standard: dict[str, Any] = {
        "app_id": "a",
        "app_name": "a",
        "service": APNS,
        "template_names": ("like",),
        "created_by": "me",
        "group_id": "g",
    }
    return Job(id=str(uuid.uuid4()), **(standard | fields))


async def added(store: Store, **fields: Any) -> str:
    """A job in the store; its id."""
    job = a_job(**fields)
    await store.jobs.add(job)
    return job.id
