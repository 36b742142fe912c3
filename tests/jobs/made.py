"""What tests of stored things begin with."""

import uuid
from typing import Any

from shared.audience.rules.audiences import KeyRange
from shared.jobs.rules.batches import Batch
from shared.jobs.rules.jobs import Job
from shared.push.rules.records import APNS
from shared.store import Store

SIZE = 10
"""Of a batch."""


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


async def add_planned(store: Store, batches: int, **fields: Any) -> str:
    """Add a job that is planned to its end, with nothing sent yet; its id."""
    job_id = await added(store, **fields)
    plan = [
        Batch(job_id=job_id, ordinal=each, range=KeyRange(SIZE * each, SIZE * (each + 1)), size=SIZE)
        for each in range(batches)
    ]
    await store.batches.add_page(plan)
    await store.batches.add_end(job_id, batches)
    await store.jobs.end_plan(job_id, end=batches)
    return job_id
