"""Apps, templates and users over HTTP, as Marathon's clients use them."""

import pytest

from shared.runtime.settings import AuditSettings
from tests.services.api.client import ADMIN, Client
from tests.services.api.conftest import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_app_is_made_shown_listed_changed_and_deleted(house: House) -> None:
    wanted = {"NAME": "life", "bundleid": "com.example.life", "id": "7", "createdBy": "mallory@example.com"}
    made = await house.admin.post("/apps", wanted)
    now = house.clock.now_ns()
    app_id = made.json["id"]
    app = {
        "id": app_id, "name": "life", "bundleId": "com.example.life", "createdBy": ADMIN, "createdAt": now,
        "updatedAt": now,
    }  # fmt: skip
    assert (made.status, made.json) == (201, app)
    assert list(made.json) == list(app)
    assert (await house.admin.get(f"/apps/{app_id}/")).json == app
    assert app in (await house.admin.get("/apps")).json

    house.clock.advance(1)
    changed = await house.admin.put(f"/apps/{app_id}", {"name": "life-2", "bundleId": "com.example.life2"})
    later = app | {"name": "life-2", "bundleId": "com.example.life2", "updatedAt": house.clock.now_ns()}
    assert (changed.status, changed.json) == (200, later)

    gone = await house.admin.delete(f"/apps/{app_id}")
    assert (gone.status, gone.body) == (204, b"")
    assert (await house.admin.delete(f"/apps/{app_id}")).status == 404


async def test_a_bundle_id_is_taken_once(house: House) -> None:
    first = {"name": "once", "bundleId": "com.example.once"}
    assert (await house.admin.post("/apps", first)).status == 201
    again = await house.admin.post("/apps", first | {"name": "twice"})
    assert (again.status, again.json["field"]) == (409, "bundleId")
    assert "uix_apps_bundle_id" in again.json["reason"]
    other = await house.app()
    assert (await house.admin.put(f"/apps/{other}", first)).status == 409


async def test_a_name_is_taken_once_whatever_its_case(house: House) -> None:
    assert (await house.admin.post("/apps", {"name": "Taken", "bundleId": "com.example.taken"})).status == 201
    other = await house.app("untaken")
    for name in ("Taken", "taken", "TAKEN"):
        wanted = {"name": name, "bundleId": "com.example.taken2"}
        for reply in (await house.admin.post("/apps", wanted), await house.admin.put(f"/apps/{other}", wanted)):
            assert (reply.status, reply.json["field"], reply.json["value"]) == (409, "name", name)
    assert (await house.admin.get(f"/apps/{other}")).json["name"] == "untaken"


async def test_whoever_may_use_an_app_takes_no_other_apps_users_by_renaming_it(house: House) -> None:
    victim, own = await house.app("victim"), await house.app("gamma")
    service = await house.service(own)
    for name in ("victim", "Victim", "anything"):
        reply = await service.put(f"/apps/{own}", {"name": name, "bundleId": "com.example.gamma"})
        assert (reply.status, reply.json["field"]) == (403, "name")
        assert "admins" in reply.json["reason"]
    shown = (await house.admin.get(f"/apps/{own}")).json
    assert shown["name"] == "gamma"
    assert shown["bundleId"] != "com.example.gamma"
    assert (await service.get(f"/apps/{victim}")).status == 403


async def test_whoever_may_use_an_app_changes_its_bundle_id_and_no_spelling_of_its_name(house: House) -> None:
    own = await house.app("delta")
    service = await house.service(own)
    for number, name in enumerate(("delta", "DELTA")):
        wanted = {"name": name, "bundleId": f"com.example.delta{number}"}
        reply = await service.put(f"/apps/{own}", wanted)
        assert (reply.status, reply.json["name"], reply.json["bundleId"]) == (200, "delta", wanted["bundleId"])
    reply = await house.admin.put(f"/apps/{own}", {"name": "DELTA", "bundleId": "com.example.delta"})
    assert (reply.status, reply.json["name"]) == (200, "DELTA")


async def test_lists_are_paged_in_the_order_of_making(house: House) -> None:
    app_id = await house.app()
    bodies = [{"name": f"n{number}", "locale": "en", "body": {"a": "b"}} for number in range(7)]
    made = await house.admin.post(f"/apps/{app_id}/templates?multiple=true", bodies)
    assert made.status == 201
    seen = []
    path = f"/apps/{app_id}/templates?limit=3"
    for _ in range(3):
        reply = await house.admin.get(path)
        seen += [template["name"] for template in reply.json]
        path = reply.headers.get("link", "").partition("<")[2].partition(">")[0]
    assert seen == [body["name"] for body in bodies]
    assert path == ""
    exact = await house.admin.get(f"/apps/{app_id}/templates?limit=7")
    assert (len(exact.json), "link" in exact.headers) == (7, False)


async def test_a_template_is_made_shown_listed_changed_and_deleted(house: House) -> None:
    app_id, other = await house.app(), await house.app()
    base = f"/apps/{app_id}/templates"
    body = {"alert": {"title": "{{ who }} \"'<&>", "a.b": ["{{x}}", 1, None]}, "$set": 1}
    made = await house.admin.post(base, {"name": "like", "locale": "pt-BR", "body": body, "defaults": {"x": 1}})
    template = made.json
    assert made.status == 201
    assert list(template) == [
        "id", "name", "locale", "defaults", "body", "createdBy", "app", "appId", "createdAt", "updatedAt",
    ]  # fmt: skip
    assert (template["body"], template["locale"], template["appId"]) == (body, "pt-BR", app_id)
    assert template["app"]["id"] == app_id
    path = f"{base}/{template['id']}"
    assert (await house.admin.get(path)).json == template
    assert (await house.admin.get(base)).json == [template]

    changed = await house.admin.put(path, {"name": "love", "locale": "en", "body": {"c": "d"}, "defaults": {}})
    assert changed.status == 200
    assert (changed.json["name"], changed.json["body"], changed.json["defaults"]) == ("love", {"c": "d"}, {"x": 1})
    replaced = await house.admin.put(path, {"name": "love", "locale": "en", "body": {"c": "d"}, "defaults": {"y": 2}})
    assert replaced.json["defaults"] == {"y": 2}

    for method in ("GET", "DELETE"):
        assert (await house.admin.send(method, f"/apps/{other}/templates/{template['id']}")).status == 404
    assert (await house.admin.delete(path)).status == 204
    assert (await house.admin.get(path)).status == 404


async def test_a_name_and_a_locale_are_taken_once_in_an_app(house: House) -> None:
    first, second = await house.app(), await house.app()
    template = {"name": "like", "locale": "en", "body": {"a": "b"}}
    for app_id in (first, second):
        assert (await house.admin.post(f"/apps/{app_id}/templates", template)).status == 201
    again = await house.admin.post(f"/apps/{first}/templates", template)
    assert again.status == 409
    assert "name_locale_app" in again.json["reason"]
    made = (await house.admin.post(f"/apps/{first}/templates", template | {"locale": "pt"})).json
    assert (await house.admin.put(f"/apps/{first}/templates/{made['id']}", template)).status == 409


async def test_several_templates_are_made_all_or_none(house: House) -> None:
    app_id = await house.app()
    template = {"name": "like", "locale": "en", "body": {"a": "b"}}
    path = f"/apps/{app_id}/templates?multiple=true"
    for several in (
        [template, template | {"locale": "pt"}, template],
        [template | {"locale": "fr"}, template | {"locale": ""}],
    ):
        assert (await house.admin.post(path, several)).status in {409, 422}
        assert (await house.admin.get(f"/apps/{app_id}/templates")).json == []


async def test_a_template_needs_its_app(house: House) -> None:
    template = {"name": "like", "locale": "en", "body": {"a": "b"}}
    reply = await house.admin.post("/apps/00000000-0000-4000-8000-000000000000/templates", template)
    assert (reply.status, reply.json["field"]) == (422, "appId")
    assert (await house.admin.get("/apps/00000000-0000-4000-8000-000000000000/templates")).json == []


async def test_a_user_is_made_once_and_shown(house: House) -> None:
    made = await house.admin.post("/users", {"email": "zoë@exämple.com", "isAdmin": None, "allowedApps": None})
    assert made.status == 201
    user = made.json
    assert list(user) == ["id", "email", "isAdmin", "allowedApps", "createdBy", "createdAt", "updatedAt", "roles"]
    assert (user["isAdmin"], user["allowedApps"], user["createdBy"]) == (False, None, ADMIN)
    assert (await house.admin.get(f"/users/{user['id']}")).json == user
    again = await house.admin.post("/users", {"email": "zoë@exämple.com"})
    assert (again.status, again.json["field"]) == (409, "email")
    assert "uix_users_email" in again.json["reason"] and "the user " in again.json["reason"]


async def test_roles_are_given_shown_and_taken_away(house: House) -> None:
    app = await house.app()
    roles = {"*": "viewer", f"app/{app.upper()}": "operator", "namespace/user:zoë@example.com": "admin"}
    canonical = {place.replace(app.upper(), app): role for place, role in roles.items()}
    made = await house.admin.post("/users", {"email": "roles@example.com", "roles": roles})
    assert (made.status, made.json["roles"]) == (201, canonical)
    path = f"/users/{made.json['id']}"
    assert (await house.admin.get(path)).json["roles"] == canonical
    refused = await house.admin.put(path, {"email": "roles@example.com", "roles": {"*": "owner"}})
    assert (refused.status, refused.json["field"]) == (422, "roles.*")
    assert (await house.admin.get(path)).json["roles"] == canonical
    without = await house.admin.put(path, {"email": "roles@example.com"})
    assert (without.status, without.json["roles"]) == (200, {})
    token = await house.admin.post("/tokens", {"name": "reader", "roles": roles})
    assert token.json["roles"] == canonical
    [shown] = [each for each in (await house.admin.get("/tokens")).json if each["id"] == token.json["id"]]
    assert shown["roles"] == canonical


async def test_callers_are_told_who_they_are(house: House) -> None:
    app = await house.app()
    service = await house.service(app)
    told = (await service.get("/whoami")).json
    assert (told["isAdmin"], told["allowedApps"], told["roles"]) == (False, [app], {})
    assert told["namespace"].startswith("token:")
    admin = (await house.admin.get("/whoami")).json
    assert (admin["namespace"], admin["name"], admin["isAdmin"]) == (f"user:{ADMIN}", ADMIN, True)
    assert told["reasons"] == admin["reasons"] == "optional"
    demanding = Client(house.build(AuditSettings(reasons="required")), house.admin.headers)
    assert (await demanding.get("/whoami")).json["reasons"] == "required"
