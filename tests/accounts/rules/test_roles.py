"""What roles cover, where they hold, and which can be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.accounts.rules.apps import ROLES, Role, read_roles, role_over_app, role_over_namespace
from shared.accounts.rules.callers import Caller
from shared.core.errors import Invalid

APP = "0190b5a2-0000-7000-8000-000000000001"
HELD = st.none() | st.sampled_from(Role)


def test_each_role_covers_itself_and_those_below_it() -> None:
    covered = {role: {other for other in Role if role.covers(other)} for role in Role}
    assert covered == {
        Role.VIEWER: {Role.VIEWER},
        Role.OPERATOR: {Role.VIEWER, Role.OPERATOR},
        Role.ADMIN: set(Role),
    }


@given(HELD, HELD, HELD)
def test_the_higher_one_holds_of_the_role_everywhere_and_the_one_there(
    everywhere: Role | None, there: Role | None, elsewhere: Role | None
) -> None:
    given = {
        "*": everywhere,
        "app/a": there,
        "namespace/user:a": there,
        "app/b": elsewhere,
        "namespace/app/a": elsewhere,
    }
    roles = {place: role for place, role in given.items() if role is not None}
    expected = max((role for role in (everywhere, there) if role), key=list(Role).index, default=None)
    assert role_over_app(roles, "a") == role_over_namespace(roles, "user:a") == expected
    assert role_over_app(roles, "c") == role_over_namespace(roles, "user:b") == everywhere


@given(HELD)
def test_ones_own_apps_and_namespace_need_no_role(everywhere: Role | None) -> None:
    roles = {} if everywhere is None else {"*": everywhere}
    caller = Caller(namespace="user:a", name="a", is_admin=False, allowed_apps=frozenset({APP}), roles=roles)
    assert caller.role_over_app(APP) is caller.role_over_namespace("user:a") is Role.ADMIN
    assert caller.role_over_app("other") is caller.role_over_namespace("user:b") is everywhere


def test_an_admin_of_the_deployment_may_do_all() -> None:
    admin = Caller(namespace="user:a", name="a", is_admin=True, allowed_apps=frozenset())
    assert admin.role_over_app(APP) is admin.role_over_namespace("user:b") is Role.ADMIN


def test_an_app_is_named_by_any_form_of_its_id() -> None:
    assert read_roles({f"app/{{{APP.upper()}}}": "viewer"}) == {f"app/{APP}": Role.VIEWER}


@pytest.mark.parametrize(
    ("place", "role", "field"),
    [
        ("*", "Viewer", "roles.*"),
        ("*", "", "roles.*"),
        ("", "viewer", "roles."),
        ("app/*", "viewer", "roles.app/*"),
        ("namespace/*", "viewer", "roles.namespace/*"),
        ("namespace/token:", "viewer", "roles.namespace/token:"),
        ("namespace/token:a b", "viewer", "roles.namespace/token:a b"),
    ],
)
def test_what_cannot_be_is_refused_by_its_place(place: str, role: str, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_roles({place: role})
    assert refused.value.field == field


def test_roles_have_an_end() -> None:
    roles = {f"namespace/user:{n}": "viewer" for n in range(ROLES)}
    assert len(read_roles(roles)) == ROLES
    with pytest.raises(Invalid) as refused:
        read_roles(roles | {"*": "viewer"})
    assert refused.value.field == "roles"


def test_one_app_in_two_spellings_is_refused() -> None:
    with pytest.raises(Invalid, match="named twice"):
        read_roles({f"app/{APP}": "viewer", f"app/{APP.upper()}": "admin"})
