"""The store of service tokens."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from shared.accounts.rules.callers import Token
from shared.core.errors import Conflict
from shared.store import Store


async def test_a_token_is_found_by_its_digest_until_it_is_removed(store: Store) -> None:
    token = Token(id="1", name="billing", digest="d1", allowed_apps=("x",), created_by="a", created_at=2**62)
    await store.tokens.add(token)
    await store.tokens.add(Token(id="2", name="billing", digest="d2", is_admin=True))
    assert await store.tokens.get("1") == token
    assert await store.tokens.with_digests(["d1", "none"]) == {"d1": token}
    assert await store.tokens.remove("1")
    assert not await store.tokens.remove("1")
    assert await store.tokens.with_digests(["d1"]) == {}
    assert [one.id for one in await store.tokens.page(limit=10)] == ["2"]


async def test_a_digest_is_unique(store: Store) -> None:
    await store.tokens.add(Token(id="1", name="a", digest="d"))
    with pytest.raises(Conflict):
        await store.tokens.add(Token(id="2", name="b", digest="d"))
    assert await store.tokens.get("2") is None


async def test_pages(store: Store) -> None:
    for number in range(3):
        await store.tokens.add(Token(id=str(number), name="t", digest=str(number)))
    first = await store.tokens.page(limit=2)
    assert [token.id for token in first] == ["0", "1"]
    assert [token.id for token in await store.tokens.page(after="1", limit=2)] == ["2"]


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


async def test_a_rotated_token_is_found_by_both_secrets_and_by_none_before(store: Store) -> None:
    token = Token(id="1", name="billing", digest="d1")
    await store.tokens.add(token)
    rotated = await store.tokens.rotate(token, "d2", previous_until=NOON, expires_at=None)
    assert rotated == replace(token, digest="d2", previous_digest="d1", previous_until=NOON)
    assert await store.tokens.with_digests(["d1", "d2"]) == {"d1": rotated, "d2": rotated}
    assert await store.tokens.rotate(token, "d3", previous_until=NOON, expires_at=None) is None
    await store.tokens.rotate(rotated, "d3", previous_until=NOON, expires_at=NOON)
    assert set(await store.tokens.with_digests(["d1", "d2", "d3"])) == {"d2", "d3"}


async def test_a_use_is_noted_once_however_many_processes_saw_it(store: Store) -> None:
    token = Token(id="1", name="billing", digest="d1")
    await store.tokens.add(token)
    await store.tokens.note_use(token, NOON)
    await store.tokens.note_use(token, NOON + timedelta(seconds=1))
    used = await store.tokens.get("1")
    assert used is not None and used.last_used_at == NOON


async def test_who_shares_a_namespace_is_known_from_both_sides(store: Store) -> None:
    own, guest = Token(id="1", name="a", digest="1"), Token(id="2", name="b", digest="2", namespace="token:1")
    named = [Token(id=id, name="c", digest=id, namespace="token:c") for id in "34"]
    for token in (own, guest, *named, Token(id="5", name="d", digest="5")):
        await store.tokens.add(token)
    found = [token for token in await store.tokens.page(limit=9) if await store.tokens.is_shared(token)]
    assert [token.id for token in found] == ["1", "2", "3", "4"]
    await store.tokens.remove("4")
    await store.tokens.remove("1")
    assert not await store.tokens.is_shared(named[0])
    assert not await store.tokens.is_shared(guest)
