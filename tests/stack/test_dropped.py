"""What a test has left at a server goes with the test, however it ended."""

import secrets
from typing import Any

import pymongo
import pytest
from pymongo.collection import Collection

from tests.conftest import drop_mongo_database
from tests.stack import Endpoints

pytestmark = pytest.mark.native


@pytest.mark.slow
def test_a_database_is_dropped_though_a_transaction_is_open_in_it(stack: Endpoints) -> None:
    client: pymongo.MongoClient[dict[str, Any]]
    with pymongo.MongoClient(stack.mongo_url, timeoutMS=50_000) as client, client.start_session() as session:
        name = f"left_open_{secrets.token_hex(4)}"
        items: Collection[dict[str, Any]] = client[name]["items"]
        items.insert_one({"_id": 1})
        session.start_transaction()
        items.update_one({"_id": 1}, {"$set": {"a": 1}}, session=session)
        drop_mongo_database(stack.mongo_url, name)
        assert items.count_documents({}) == 0
