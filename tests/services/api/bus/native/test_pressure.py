"""`GET /bus/pressure`: what waits, in figures."""

import pytest

from shared.bus import standing
from tests.services.api.bus.conftest import event
from tests.services.api.bus.native.test_topics import fresh_name
from tests.services.api.client import Client
from tests.services.api.conftest import House

pytestmark = [pytest.mark.bus_routes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_what_no_fan_out_has_read_is_lag(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing, "FRESH_SECONDS", 3_600.0)
    alice = await house.service()
    fresh = Client(house.build(), alice.headers)
    before = await fresh.get("/bus/pressure")
    assert before.status == 200
    assert set(before.json) == {"due", "queued", "oldest_seconds", "log_lag"}
    assert (await alice.post(f"/bus/topics/{fresh_name()}/events", [event(), event()])).status == 202
    assert (await fresh.get("/bus/pressure")).json == before.json  # one look serves all for a while
    after = await Client(house.build(), alice.headers).get("/bus/pressure")
    assert after.json["log_lag"] == before.json["log_lag"] + 2
    assert (after.json["due"], after.json["queued"], after.json["oldest_seconds"]) == (0, 0, 0.0)
