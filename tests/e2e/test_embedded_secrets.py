"""`carillon up` keeps the secrets of credentials under a key of its own, which lies in its folder and outlives it."""

import stat

import httpx
import pytest

from services.embedded.instance import KEY_FILE, Instance
from tests.e2e.test_embedded import Upper, ended, upper
from tests.providers.accounts import WHSEC
from tests.providers.fakes import fake_process

pytestmark = pytest.mark.e2e

__all__ = ["upper"]


@pytest.mark.slow
async def test_a_secret_outlives_the_process_that_was_given_it(upper: Upper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CARILLON_PROVIDERS_ALLOWED_NETWORKS", "127.0.0.0/8")
    async with fake_process("http_fake") as provider:
        process, first = await upper.start()
        body = {
            "name": "main",
            "kind": "http",
            "fields": {"url": f"{provider.url}/send"},
            "secret": {"signingSecret": WHSEC, "authorization": "Bearer hush-hush-hush"},
            "testRecipient": "ana@example.com",
        }
        app_id = (await post(first, "/apps", {"name": "demo", "bundleId": "com.example.demo"}, 201))["id"]
        made = await post(first, f"/apps/{app_id}/credentials", body, 201)
        play = {"name": "play", "kind": "sandbox", "testRecipient": "ana@example.com"}
        await post(first, f"/apps/{app_id}/credentials", play, 201)
        await ended(process)
        key = upper.folder / KEY_FILE
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        assert b"ana@example.com" in (upper.folder / "sandbox.ndjson").read_bytes()
        assert key.read_text().strip() not in process.log
        assert "hush" not in process.log

        process, second = await upper.start()
        await post(second, f"/apps/{app_id}/credentials/{made['id']}/test", None, 204)
        arrived = [message.headers["authorization"] for message in (await provider.tell()).arrived]
        assert arrived == ["Bearer hush-hush-hush"] * 2
        await ended(process)

        key.write_text("no key")
        assert await (await upper.spawn("up", "--data-dir", str(upper.folder))).gone() != 0
        assert "holds no key" in upper.spawned[-1].log
        assert key.read_text() == "no key"


async def post(house: Instance, path: str, body: object, status: int) -> dict[str, str]:
    async with httpx.AsyncClient(trust_env=False, headers={"x-forwarded-email": house.admin}) as http:
        answer = await http.post(house.api + path, json=body)
    assert answer.status_code == status, answer.text
    made: dict[str, str] = answer.json() if answer.content else {}
    return made
