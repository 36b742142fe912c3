"""What the API counts of those who ask: who is known by which way, who is refused and why, and what is written down."""

import pytest

from shared.runtime.settings import ApiSettings
from tests.samples import sample
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


def signed_in(way: str, outcome: str) -> float:
    return sample("sign_ins_total", way=way, outcome=outcome)


def refused(why: str) -> float:
    return sample("requests_refused_total", why=why)


@pytest.mark.parametrize(
    ("headers", "peer", "way", "outcome"),
    [
        ({"x-forwarded-email": ADMIN}, "127.0.0.1", "proxy", "known"),
        ({"x-forwarded-email": "nobody@example.com"}, "127.0.0.1", "proxy", "refused"),
        ({"x-forwarded-email": ADMIN}, "203.0.113.9", "proxy", "refused"),
        ({"authorization": "Bearer unheard-of"}, "127.0.0.1", "token", "refused"),
        ({}, "127.0.0.1", "none", "refused"),
    ],
)
async def test_callers_are_counted_by_their_way(
    house: House, headers: dict[str, str], peer: str, way: str, outcome: str
) -> None:
    before = signed_in(way, outcome)
    reply = await Client(house.admin.app, headers, peer).get("/apps")
    assert reply.status == (200 if outcome == "known" else 401)
    assert signed_in(way, outcome) == before + 1


async def test_a_service_that_is_known_is_counted(house: House) -> None:
    service, before = await house.service(await house.app()), signed_in("token", "known")
    assert (await service.get("/whoami")).status == 200
    assert signed_in("token", "known") == before + 1


async def test_what_guards_refuse_is_counted_by_why(house: House) -> None:
    before = [refused(why) for why in ("host", "cross_site", "role")]
    client = Client(house.build(ApiSettings(first_admin=ADMIN, allowed_hosts=("carillon.example",))), {})
    assert (await client.get("/apps")).status == 421
    assert (await house.admin.post("/apps", {}, sec_fetch_site="cross-site")).status == 403
    service = await house.service(await house.app())
    assert (await service.get("/users")).status == 403
    assert [refused(why) for why in ("host", "cross_site", "role")] == [count + 1 for count in before]


async def test_acts_are_counted_by_how_they_ended(house: House) -> None:
    done, refusal = ({"act": "app.create", "outcome": outcome} for outcome in ("done", "refused"))
    before = sample("audit_records_total", **done), sample("audit_records_total", **refusal)
    assert (await house.admin.post("/apps", {"name": "counted", "bundleId": "com.example.counted"})).status == 201
    assert (await house.admin.post("/apps", {"name": ""})).status == 422
    after = sample("audit_records_total", **done), sample("audit_records_total", **refusal)
    assert after == (before[0] + 1, before[1] + 1)
