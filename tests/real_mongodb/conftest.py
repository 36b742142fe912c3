"""A MongoDB that `CARILLON_TEST_MONGO_URL` names; without it, every test of this folder is skipped.
`docs/real-mongodb.md` says how to run them, and what was never run yet.
"""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure

from shared.store import Store
from tests.conftest import drop_mongo_database
from tests.stack.mongodb import URL_VARIABLE, at_server
from tests.stack.server import run_apart

Document = dict[str, Any]
Admin = AsyncDatabase[Document]


@pytest.fixture(scope="session")
def server() -> str:
    """The URL of the server, by a user who may do all."""
    url = os.environ.get(URL_VARIABLE, "")
    if not url:
        pytest.skip(f"{URL_VARIABLE} names no MongoDB")
    return url


@pytest.fixture(scope="session")
def prepared(server: str) -> Iterator[str]:
    """The URL of a database in which `carillon init` has made everything. Tests share it, each with keys of its own."""
    name = a_name()
    run_apart(_set_up(at_server(server, name)))
    yield at_server(server, name)
    drop_mongo_database(server, name)


@pytest.fixture
async def store(prepared: str) -> AsyncIterator[Store]:
    """A store in the prepared database."""
    opened = Store.open(prepared)
    yield opened
    await opened.close()


@pytest.fixture
async def admin(server: str) -> AsyncIterator[Admin]:
    """Where the server itself is told what to do."""
    client: AsyncMongoClient[Document] = AsyncMongoClient(server, timeoutMS=60_000)
    yield client.admin
    await client.close()


def a_name() -> str:
    """A name that no other test has."""
    return f"carillon_{secrets.token_hex(6)}"


async def ask_or_skip(database: Admin, command: Document, why: str) -> Document:
    """The answer to a command; where the server does not have it, the test is skipped."""
    try:
        answer: Document = await database.command(command)
    except OperationFailure as error:
        pytest.skip(f"{why} ({error.code}: {error.details and error.details.get('errmsg')})")
    return answer


async def _set_up(url: str) -> None:
    store = Store.open(url)
    await store.setup()
    await store.close()
