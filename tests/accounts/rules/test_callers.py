"""Who may call, and what they may touch."""

import hashlib

import pytest
from msgspec.structs import replace

from shared.accounts.rules.apps import Role
from shared.accounts.rules.callers import (
    Revocation,
    RevokedKind,
    Token,
    User,
    check_email,
    check_token_name,
    secret_digest,
    token_caller,
    user_caller,
)
from shared.core.errors import Invalid
from shared.core.instants import EPOCH

USER = User(id="1", email="ana@example.com", allowed_apps=("a", "b"))
TOKEN = Token(id="2", name="billing", digest="d", allowed_apps=("a",))
ADMIN = User(id="3", email="root@example.com", is_admin=True)


def test_a_caller_may_use_their_apps_and_an_admin_all() -> None:
    assert [user_caller(USER).role_over_app(app) for app in ("a", "b", "c")] == [Role.ADMIN, Role.ADMIN, None]
    assert [token_caller(TOKEN).role_over_app(app) for app in ("a", "b")] == [Role.ADMIN, None]
    assert user_caller(ADMIN).role_over_app("any") is Role.ADMIN


def test_a_caller_has_the_roles_of_their_user_or_token() -> None:
    roles = {"*": Role.VIEWER}
    assert user_caller(replace(USER, roles=roles)).roles == token_caller(replace(TOKEN, roles=roles)).roles == roles


def test_who_is_not_said_to_be_an_admin_is_none_and_has_no_apps() -> None:
    nobody = User(id="1", email="ana@example.com")
    service = Token(id="2", name="billing", digest="d")
    for caller in (user_caller(nobody), token_caller(service)):
        assert not caller.is_admin
        assert (caller.role_over_app("a"), caller.role_over_namespace("user:other"), caller.roles) == (None, None, {})
    assert (nobody.created_at, nobody.updated_at, service.created_at) == (0, 0, 0)


def test_what_callers_own_is_found_again_in_every_release() -> None:
    # Schedules are stored below these names. A service keeps its own when it is renamed.
    assert (user_caller(USER).namespace, user_caller(USER).name) == ("user:ana@example.com", "ana@example.com")
    assert (token_caller(TOKEN).namespace, token_caller(TOKEN).name) == ("token:2", "billing")
    assert [*RevokedKind] == ["token", "user"]


def test_after_a_revocation_the_schedules_are_still_to_be_paused() -> None:
    revocation = Revocation(id="token:2", kind=RevokedKind.TOKEN, subject_id="2", at=EPOCH)
    assert (revocation.paused, revocation.spared) == (False, ())


def test_of_a_secret_its_hash_is_kept() -> None:
    assert secret_digest("sé") == hashlib.sha256("sé".encode()).hexdigest()


LABEL = "d" * 63


@pytest.mark.parametrize(
    "email",
    [
        "a@b.c",
        "ana.maria+x@mail.example.com",
        "jürgen@exämple.de",
        "a@x-y.z",
        f"{'a' * (254 - 130)}@{LABEL}.{LABEL}.c",
    ],
)
def test_an_address_is_taken(email: str) -> None:
    check_email(email)


@pytest.mark.parametrize(
    "email",
    [
        "", "a", "@b.c", "a@", "a@b", "a@b.", "a@.c", "a@-b.c", "a@b-.c", "a@b..c", ".a@b.c", "a.@b.c", "a..b@c.d",
        "a b@c.d", "a@b@c.d", "a@b.c\n", "<a@b.c>", "a\0@b.c", "an\u200ba@b.c",
        f"{'a' * (255 - 130)}@{LABEL}.{LABEL}.c",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(email: str) -> None:
    with pytest.raises(Invalid, match=r"^invalid email") as refused:
        check_email(email)
    assert (refused.value.field, refused.value.value) == ("email", email)


@pytest.mark.parametrize("name", ["b", "billing of the café", "x" * 255])
def test_a_token_has_a_name_that_can_be_read(name: str) -> None:
    check_token_name(name)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "a\0"])
def test_a_token_has_no_other_name(name: str) -> None:
    with pytest.raises(Invalid, match=r"^invalid name") as refused:
        check_token_name(name)
    assert (refused.value.field, refused.value.value) == ("name", name)
