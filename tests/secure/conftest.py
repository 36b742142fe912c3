"""Carillon over TLS with a login at each server, with the rights that `docs/security.md` lists and no more."""

import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.house import House, house_on
from tests.secure.place import Secure, open_secure
from tests.stack import Endpoints


@pytest.fixture(scope="session")
def secure(stack: Endpoints) -> Iterator[Secure]:
    """The servers, with the users of the page."""
    with open_secure(stack) as found:
        yield found


@pytest.fixture
async def house(secure: Secure, tmp_path: Path) -> AsyncIterator[House]:
    """What the test itself prepares and looks at, it does as an admin; processes that start with `secure.urls` have the
    page's rights alone."""
    common: dict[str, Any] = {
        "CARILLON_API_PORT": "0",
        "CARILLON_HEALTH_PORT": "0",
        "CARILLON_WORKER_BATCH_SIZE": "1000",
        "CARILLON_WORKER_MAX_BATCH_FAILURE": "1",
        "CARILLON_SCHEDULER_UPKEEP_SECONDS": "0.5",
        "CARILLON_SCHEDULER_SWEEP_SECONDS": "0.5",
        "CARILLON_SCHEDULER_STALE_SECONDS": "2",
        "CARILLON_SCHEDULER_MARGIN_SECONDS": "1",
        # Connections with TLS take long on a busy machine, and a commit that takes longer than this is recovered.
        "CARILLON_STREAM_TRANSACTION_TIMEOUT_SECONDS": "30",
        "CARILLON_STREAM_REQUEST_TIMEOUT_SECONDS": "10",
        "CARILLON_BUS_LOG_TOPIC": f"carillon.bus-{secrets.token_hex(4)}",
        "CARILLON_BUS_LOG_PARTITIONS": "4",
        "CARILLON_BUS_GROUP": f"carillon-{secrets.token_hex(4)}",
        "CARILLON_BUS_ALLOW_HTTP": "true",
        "CARILLON_FEEDBACK_GROUP": f"carillon-{secrets.token_hex(4)}",
        "CARILLON_SHUTDOWN_READINESS_SECONDS": "0",
        "CARILLON_LOGS_FORMAT": "json",
    }
    async with house_on({**common, **secure.admin_urls()}, tmp_path, secure.push_database) as house:
        yield house
