"""The settings as the API shows them."""

import pytest
from msgspec.structs import replace

from shared.runtime.bus_settings import BusSettings
from shared.runtime.configuration import list_settings
from shared.runtime.server_settings import MailSettings, StoreSettings
from shared.runtime.settings import ApiSettings, CallbackSettings, Settings
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_admins_see_every_setting(house: House) -> None:
    shown = {each["name"]: each for each in (await house.admin.get("/settings")).json}
    assert shown["callbacks.topics"]["value"] == '["orders"]'
    assert shown["callbacks.topics"]["default"] == "[]"
    assert shown["api.max_connections"]["rare"] is True
    assert set(shown) == {each.name for each in list_settings(Settings())}
    assert (await (await house.service()).get("/settings")).status == 403


async def test_secrets_are_masked() -> None:
    words = [f"hush{n}" for n in range(5)]
    settings = replace(
        Settings(),
        store=StoreSettings(url=f"mongodb://carillon:{words[0]}@host/carillon"),
        api=ApiSettings(proxy_secret=words[1] * 4),
        callbacks=CallbackSettings(signing_secret=words[2]),
        mail=MailSettings(url=f"smtp://user:{words[3]}@host:587"),
        bus=BusSettings(root_key=words[4] * 4),
    )
    text = repr(list_settings(settings))
    assert "carillon:***@host" in text
    assert [word for word in words if word in text] == []
