"""`GET /apps/{id}/devices` over HTTP: the devices of one user, where an index leads to them."""

import asyncpg
import pytest

from shared.drivers.postgres import Audience
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House
from tests.services.api.http.test_service import rebuilt

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_the_devices_of_a_user_are_found_by_an_index(
    house: House, own_crowd: Audience, push_database: str
) -> None:
    client = Client(rebuilt(house, audience=own_crowd), {"x-forwarded-email": ADMIN})
    path = f"/apps/{await house.app()}/devices?user="
    refused = await client.get(path + "user-1")
    assert (refused.status, "no index on user_id" in refused.json["detail"]) == (409, True)
    connection = await asyncpg.connect(push_database)
    await connection.execute("ALTER TABLE game_apns RENAME TO devices; CREATE VIEW game_apns AS SELECT * FROM devices")
    through_a_view = await client.get(path + "user-1")
    assert [each["seqId"] for each in through_a_view.json] == [2, 3]
    await connection.execute("DROP VIEW game_apns; ALTER TABLE devices RENAME TO game_apns")
    await connection.execute("CREATE INDEX ON game_apns (user_id)")
    await connection.close()
    found = await client.get(path + "user-1")
    assert found.json == [
        {"service": "apns", "seqId": 2, "token": "secret-2", "locale": "fr", "tz": "+0545"},
        {"service": "apns", "seqId": 3, "token": "secret-3", "locale": "", "tz": ""},
    ]
    assert (await client.get(path + "nobody")).json == []
    assert (await client.get(path + "%00")).json == []


async def test_a_user_has_an_id_and_devices_are_for_operators(house: House) -> None:
    app_id = await house.app()
    for user in ("", "x" * 1_025):
        refused = await house.admin.get(f"/apps/{app_id}/devices?user={user}")
        assert (refused.status, refused.json["field"]) == (422, "user")
    await house.admin.post("/users", {"email": "sees@example.com", "roles": {f"app/{app_id}": "viewer"}})
    assert (await house.admin.someone("sees@example.com").get(f"/apps/{app_id}/devices?user=u1")).status == 403
