"""Sessions of browsers: each is seen and ended by its own person alone."""

import pytest

from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import Browser
from tests.services.api.http.pages.test_sessions import is_open, issue

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_somebody_sees_their_browsers_and_signs_one_out(house: House) -> None:
    _, secret = await issue(house)
    _, others = await issue(house)
    lost, kept = Browser(house.admin.app, headers={"user-agent": "Lost/1"}), Browser(house.admin.app)
    for browser in (lost, kept):
        assert (await browser.sign_in(secret)).status == 303
        house.clock.advance(1)
    service, other = house.admin.service(secret), house.admin.service(others)
    newest, oldest = (await service.get("/sessions")).json
    assert (oldest["agent"], oldest["address"], oldest["isThis"]) == ("Lost/1", "203.0.113.9", False)
    assert oldest["beganAt"] < newest["beganAt"] < newest["endsAt"]
    assert lost.cookie.partition("=")[2] not in str(newest) + str(oldest)
    assert (await other.get("/sessions")).json == []
    assert (await other.delete(f"/sessions/{oldest['id']}")).status == 404
    assert (await service.delete(f"/sessions/{oldest['id']}")).status == 204
    assert (await service.delete(f"/sessions/{oldest['id']}")).status == 404
    assert (await is_open(lost), await is_open(kept)) == (False, True)
    [ended, *_] = [each for each in (await house.admin.get(f"/audit?on={oldest['id']}")).json if each["status"] == 204]
    assert (ended["act"], ended["outcome"]) == ("session.revoke", "done")
    house.clock.advance(3_600)
    assert (await service.get("/sessions")).json == []
