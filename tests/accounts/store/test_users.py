"""The store of users."""

import pytest

from shared.accounts.rules.apps import Role
from shared.accounts.rules.callers import User
from shared.core.errors import Conflict
from shared.store import Store


async def test_a_user_comes_back_as_it_went_in_and_by_its_address_in_any_case(store: Store) -> None:
    nobody = User(id="1", email="zoë@example.com")
    somebody = User(id="2", email="A@example.com", is_admin=True, allowed_apps=("x", "y"), created_by="z", created_at=5)
    for user in (nobody, somebody):
        await store.users.add(user)
        assert await store.users.get(user.id) == user
    for asked in ([nobody.email, somebody.email], ["ZOË@example.com", "a@example.com"]):
        assert await store.users.with_emails(asked) == {nobody.email: nobody, "a@example.com": somebody}
    assert await store.users.get("3") is None


async def test_an_address_is_unique(store: Store) -> None:
    await store.users.add(User(id="1", email="a@example.com"))
    with pytest.raises(Conflict) as refused:
        await store.users.add(User(id="2", email="A@Example.com"))
    assert "the user a@example.com" in refused.value.reason
    assert refused.value.field == "email"


async def test_update_changes_rights_only(store: Store) -> None:
    await store.users.add(User(id="1", email="a@example.com", created_at=3))
    changed = await store.users.update("1", is_admin=True, allowed_apps=["x"], roles={"*": Role.VIEWER}, at=9)
    assert changed == User(
        id="1", email="a@example.com", is_admin=True, allowed_apps=("x",), roles={"*": Role.VIEWER}, created_at=3,
        updated_at=9,
    )  # fmt: skip
    assert await store.users.get("1") == changed
    without = await store.users.update("1", is_admin=False, allowed_apps=None, roles={}, at=10)
    assert without is not None
    assert (without.allowed_apps, without.roles) == (None, {})
    assert await store.users.update("2", is_admin=True, allowed_apps=None, roles={}, at=9) is None


async def test_pages_and_removal(store: Store) -> None:
    for number in range(5):
        await store.users.add(User(id=str(number), email=f"{number}@example.com"))
    assert await store.users.remove("2")
    assert not await store.users.remove("2")
    first = await store.users.page(limit=2)
    rest = await store.users.page(after=first[-1].id, limit=10)
    assert [user.id for user in first + rest] == ["0", "1", "3", "4"]
