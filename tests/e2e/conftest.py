"""A house of processes on the native stack."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.house import House, house_on
from tests.stack import Endpoints

HASTE = {
    "CARILLON_STREAM_TRANSACTION_TIMEOUT_SECONDS": "4",
    "CARILLON_STREAM_REQUEST_TIMEOUT_SECONDS": "5",
    "CARILLON_SCHEDULER_STALE_SECONDS": "2",
    "CARILLON_SCHEDULER_MARGIN_SECONDS": "1",
}


@pytest.fixture
async def house(
    stack: Endpoints, mongo_database: str, rabbit_vhost: str, push_database: str, tmp_path: Path
) -> AsyncIterator[House]:
    """Small batches and frequent looks, so that many things happen in little time; the promises are the same.

    Nobody soon takes over what another process has in hand: a busy machine is no reason to. `hasty` changes that.
    """
    environment = {
        **stack.environment(mongo_database, rabbit_vhost, push_database),
        "CARILLON_STREAM_TRANSACTION_TIMEOUT_SECONDS": "30",
        "CARILLON_STREAM_REQUEST_TIMEOUT_SECONDS": "20",
        "CARILLON_API_PORT": "0",
        "CARILLON_HEALTH_PORT": "0",
        "CARILLON_WORKER_BATCH_SIZE": "1000",
        "CARILLON_WORKER_PAGE_BATCHES": "8",
        "CARILLON_WORKER_MAX_BATCH_FAILURE": "1",
        "CARILLON_SCHEDULER_UPKEEP_SECONDS": "0.5",
        "CARILLON_SCHEDULER_SWEEP_SECONDS": "0.5",
        "CARILLON_SCHEDULER_STALE_SECONDS": "5",
        "CARILLON_SCHEDULER_MARGIN_SECONDS": "5",
        "CARILLON_FEEDBACK_GROUP": f"carillon-{secrets.token_hex(4)}",
        "CARILLON_BUS_LOG_TOPIC": f"bus-{secrets.token_hex(4)}",
        "CARILLON_BUS_LOG_PARTITIONS": "4",
        "CARILLON_BUS_GROUP": f"fanout-{secrets.token_hex(4)}",
        "CARILLON_SHUTDOWN_READINESS_SECONDS": "0",
        "CARILLON_LOGS_FORMAT": "json",
    }
    async with house_on(environment, tmp_path, push_database) as house:
        yield house


@pytest.fixture
def hasty(house: House) -> None:
    """After some seconds of silence another process takes over what one has in hand. A slow machine is silent too, so
    nothing that such a test asserts may depend on who did what."""
    house.environment |= HASTE


@pytest.fixture
def lingering(house: House) -> None:
    """The locks of a killed process last for 15 seconds, as they do in MongoDB for up to a minute."""
    house.session_seconds = 15.0
