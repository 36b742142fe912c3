"""What tests of stored things begin with."""

import uuid

from shared.domain.jobs import Job
from shared.domain.records import APNS
from shared.store import Store


async def added(store: Store) -> str:
    """A job in the store; its id."""
    job = Job(
        id=str(uuid.uuid4()),
        app_id="a",
        app_name="a",
        service=APNS,
        template_names=("like",),
        created_by="me",
        group_id="g",
    )
    await store.jobs.add(job)
    return job.id
