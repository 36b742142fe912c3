"""Taking a signing secret, against the real API."""

from datetime import UTC, datetime, timedelta

import pytest

from carillon import AsyncCarillon, Conflict, Forbidden
from shared.runtime.serving import HttpServer
from tests.client.both import connect
from tests.client.made import NAMESPACE
from tests.services.api.accounts.test_signing_secrets import with_key
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_a_secret_is_taken_for_ones_own_namespace_or_as_an_admin_for_another(house: House) -> None:
    server = HttpServer("api", with_key(house).app, host="127.0.0.1", port=0, proxy_headers=False)
    await server.start()
    issued = (await house.admin.post("/tokens", {"name": "signed"})).json
    url, namespace = f"http://127.0.0.1:{server.port}", f"token:{issued['id']}"
    async with connect(url, user=ADMIN) as admin, connect(url, token=issued["token"]) as service:
        own = await admin.signing_secrets.create()
        assert (own.namespace, own.version) == (NAMESPACE, 1)
        assert own.secret.startswith("whsec_") and own.secret not in repr(own)
        assert timedelta(hours=23) < own.alone_from - datetime.now(UTC) < timedelta(hours=25)
        assert (await admin.signing_secrets.create(namespace=namespace)).namespace == namespace
        with pytest.raises(Forbidden):
            await service.signing_secrets.create(namespace=NAMESPACE)
    await server.stop()


async def test_without_a_deployments_secret_there_is_none(client: AsyncCarillon) -> None:
    with pytest.raises(Conflict) as refused:
        await client.signing_secrets.create()
    assert refused.value.field == "callbacks.signing_secret"
