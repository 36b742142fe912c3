"""Reads go to the primary, whatever the URL says: a secondary may lag behind what this process has just written."""

from typing import Any

import pytest
from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection

from shared.core.documents import Position
from shared.store import Store
from tests.jobs.made import added
from tests.jobs.store.test_templates import template

ELSEWHERE = ["secondary", "secondaryPreferred", "nearest"]


@pytest.mark.parametrize("preference", ELSEWHERE)
async def test_every_collection_reads_from_the_primary(preference: str) -> None:
    store = Store.open(f"mongodb://127.0.0.1:1/carillon?replicaSet=rs0&readPreference={preference}")
    found = [
        held.read_preference
        for aggregate in store._aggregates.values()
        for held in vars(aggregate).values()
        if isinstance(held, AsyncCollection)
    ]
    assert len(found) >= len(store._aggregates) > 0
    assert all(read_preference == ReadPreference.PRIMARY for read_preference in found)
    await store.close()


@pytest.mark.parametrize("preference", ELSEWHERE)
async def test_transactions_read_from_the_primary(mongo_database: str, preference: str) -> None:
    """The driver refuses a transaction that would read from anywhere else."""
    separator = "&" if "?" in mongo_database else "?"
    store = Store.open(f"{mongo_database}{separator}readPreference={preference}")
    await store.setup()
    job_id = await added(store)
    await store.templates.add_many([template(1), template(2)])
    assert await store.feedbacks.flush("t/0", Position(0), Position(7), {(job_id, "ack"): 7})
    counted: Any = await store.jobs.get(job_id)
    assert counted.feedbacks == {"ack": 7}
    await store.close()
