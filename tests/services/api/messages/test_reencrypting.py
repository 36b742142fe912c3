"""A key is replaced: a new one before it, all secrets sealed anew, the old one gone."""

import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.core.errors import Conflict
from shared.drivers.secrets import KeyRing, fresh_key
from shared.messages.credentials import CredentialFlow, Resealed
from shared.messages.rules.credentials import Credential
from shared.runtime.configuration import load
from tests.messages.store.test_credentials import a_credential

pytestmark = pytest.mark.native

OLD, NEW = fresh_key(), fresh_key()
SECRET = {"token": "hush-hush-hush"}


@pytest.fixture
async def servers(mongo_database: str, tmp_path: Path) -> AsyncIterator[Servers]:
    settings = {"CARILLON_STORE_URL": mongo_database, "CARILLON_PROVIDERS_SECRET_KEYS": f"{NEW},{OLD}"}
    opened = Servers(load(settings), service="test")
    await opened.store.setup()
    yield opened
    await opened.close()


def sealed(ring: KeyRing, **fields: object) -> Credential:
    id = secrets.token_hex(8)
    return a_credential(id, **{"secret": ring.seal(SECRET, id), **fields})


async def secrets_of(servers: Servers, ring: KeyRing, credentials: list[Credential]) -> list[dict[str, str]]:
    found = [await servers.store.credentials.get(credential.id) for credential in credentials]
    return [ring.open(each.secret, each.id) for each in found if each is not None]


async def test_all_are_sealed_anew_and_then_the_old_key_may_go(servers: Servers) -> None:
    flow: CredentialFlow = Rooms(servers).messages.credentials
    both, old, new = KeyRing([NEW, OLD]), KeyRing([OLD]), KeyRing([NEW])
    before = [sealed(old) for _ in range(5)]
    for credential in (*before, sealed(both), a_credential("bare", secret="")):
        assert await servers.store.credentials.add(credential)
    assert await secrets_of(servers, both, before) == [SECRET] * 5
    assert await flow.reseal(most=3) == Resealed(resealed=3, remaining=2, unreadable=0)
    assert await flow.reseal(most=3) == Resealed(resealed=2, remaining=0, unreadable=0)
    assert await flow.reseal(most=3) == Resealed(resealed=0, remaining=0, unreadable=0)
    assert await secrets_of(servers, new, before) == [SECRET] * 5


async def test_what_no_key_opens_is_told_and_left_as_it_is(servers: Servers) -> None:
    flow = Rooms(servers).messages.credentials
    lost, known = sealed(KeyRing([fresh_key()])), sealed(KeyRing([OLD]))
    for credential in (lost, known):
        await servers.store.credentials.add(credential)
    assert await flow.reseal(most=10) == Resealed(resealed=1, remaining=1, unreadable=1)
    assert await flow.reseal(most=10) == Resealed(resealed=0, remaining=1, unreadable=1)
    assert await servers.store.credentials.get(lost.id) == lost
    with pytest.raises(Conflict, match=r"providers\.secret_keys"):
        flow.open(lost)


async def test_nobody_undoes_it_with_what_they_read_before(servers: Servers) -> None:
    flow = Rooms(servers).messages.credentials
    credential = sealed(KeyRing([OLD]), kind="http")
    await servers.store.credentials.add(credential)
    await flow.reseal(most=10)
    changed = await flow.change(credential, lambda present: replace(present, rate=7.0))
    assert (changed.rate, KeyRing([NEW]).open(changed.secret, changed.id)) == (7, SECRET)
