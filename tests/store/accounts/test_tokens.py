"""The store of service tokens."""

import pytest

from shared.domain.accounts.callers import Token
from shared.domain.errors import Conflict
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
