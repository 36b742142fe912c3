"""A patient on the native stack."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.runtime.metrics import CERTIFICATE_EXPIRY
from tests.services.commands.doctor.patient import Patient, patient_on
from tests.stack import Endpoints


@pytest.fixture(autouse=True)
def no_certificates() -> None:
    """Forget the certificates that other tests of this process have seen."""
    CERTIFICATE_EXPIRY.clear()


@pytest.fixture
async def patient(
    stack: Endpoints, mongo_database: str, rabbit_vhost: str, push_database: str, tmp_path: Path
) -> AsyncIterator[Patient]:
    async with patient_on(stack, mongo_database, rabbit_vhost, push_database, tmp_path) as patient:
        yield patient
