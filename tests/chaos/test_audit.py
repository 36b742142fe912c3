"""An API process that dies in the middle of an act leaves behind that it began."""

import http.client
import signal
from datetime import timedelta

import pytest

from services.embedded.processes import free_port
from shared.console.rules.audit import ActOutcome
from tests.e2e.house import House
from tests.e2e.test_over_http import Customer, an_app

pytestmark = [pytest.mark.chaos, pytest.mark.native]

ADMIN = "admin@example.com"


async def test_how_an_act_ended_is_unknown_if_its_process_died(house: House) -> None:
    ports = free_port(), free_port()
    faults = "", "api.after_job_insert=kill"
    apis = [
        await house.start("api", fault=fault, CARILLON_API_PORT=str(port), CARILLON_API_FIRST_ADMIN=ADMIN)
        for port, fault in zip(ports, faults, strict=True)
    ]
    sound, doomed = (Customer(port) for port in ports)
    await house.devices(10)
    app_id = await an_app(house, sound)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        await doomed.call("POST", f"/apps/{app_id}/jobs?template=welcome", {"service": "apns"})
    assert await apis[1].gone() == -signal.SIGKILL

    [record] = await house.servers.store.audit.page(act="job.create", limit=10)
    assert (record.outcome, record.status, record.on.app_id) == (ActOutcome.BEGUN, 0, app_id)
    assert record.outcome_at(record.at + timedelta(minutes=2)) is ActOutcome.UNKNOWN
    _, shown = await sound.call("GET", f"/apps/{app_id}/audit?act=job.create")
    assert [each["id"] for each in shown] == [record.id]
