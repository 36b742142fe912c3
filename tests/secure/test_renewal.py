"""Certificates are exchanged, their authority too, while a job runs."""

import asyncio

import pytest

from tests.e2e.house import House
from tests.secure import servers
from tests.secure.place import Secure
from tests.stack import certificates

pytestmark = [pytest.mark.secure, pytest.mark.native]
# What the servers' restarts cut off is found and sent by other lanes this soon.
SOON_LOST = {"CARILLON_STREAM_TRANSACTION_TIMEOUT_SECONDS": "6", "CARILLON_STREAM_REQUEST_TIMEOUT_SECONDS": "5"}


@pytest.mark.kills_servers
async def test_a_running_job_survives_new_certificates_everywhere(house: House, secure: Secure) -> None:
    await house.devices(20_000)
    slow = ",".join(f"send.after_take@{number}=delay:3" for number in range(7, 11))
    worker = await house.start("worker", fault=slow, **secure.urls(), **SOON_LOST)
    await house.start("scheduler", **secure.urls(), **SOON_LOST)
    job = await house.post()
    await worker.reached("send.after_take")
    await asyncio.to_thread(certificates.renew)
    await asyncio.to_thread(servers.restart_all)
    await house.exactly_once(job, 20_000, seconds=150)
    assert "certificates read again" in worker.log
