"""The pages of access: who may do what, and what each form does."""

import re

import pytest
from msgspec.structs import replace

from tests.services.api.client import ADMIN, PROXY
from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import Browser, tags_of, text_of
from tests.services.api.http.pages.test_sessions import is_open, signed_in

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def admin(house: House) -> Browser:
    return Browser(house.admin.app, headers={"x-forwarded-email": ADMIN}, peer=PROXY)


async def test_an_admin_makes_a_user_changes_and_deletes_them(house: House, admin: Browser) -> None:
    app_id = await house.app()
    email = f"{app_id}@example.com"
    refused = await admin.post("/access/users", {"email": email, "roles": "everything"})
    assert (refused.status, email in refused.body.decode()) == (422, True)
    assert "a line is an object, a space and a role" in text_of(refused)
    made = await admin.post("/access/users", {"email": email, "roles": f"app/{app_id} admin\r\n* viewer\r\n"})
    page = made.headers["location"].removeprefix("/ui")
    assert made.status == 303
    shown = await admin.get(page)
    assert (shown.status, "Created." in text_of(shown)) == (200, True)
    assert f"app/{app_id} admin\n* viewer" in shown.body.decode()
    user_id = page.partition("?")[0].rpartition("/")[2]
    user = (await house.admin.get(f"/users/{user_id}")).json
    assert (user["allowedApps"], user["roles"], user["isAdmin"]) == ([app_id], {"*": "viewer"}, False)
    assert (await admin.post(f"/access/users/{user_id}", {"admin": "on", "roles": ""})).status == 303
    user = (await house.admin.get(f"/users/{user_id}")).json
    assert (user["allowedApps"], user["roles"], user["isAdmin"]) == ([], {}, True)
    assert (await admin.post(f"/access/users/{user_id}/delete", {"reason": "left us"})).status == 303
    assert (await admin.get(f"/access/users/{user_id}")).status == 404
    [deleted, *_] = (await house.admin.get(f"/audit?on={user_id}")).json
    assert (deleted["act"], deleted["reason"], deleted["via"]) == ("user.delete", "left us", "carillon-ui")


async def test_what_is_wrong_stands_in_the_form_that_was_sent(admin: Browser) -> None:
    typed = {"roles": "namespace/token:shop owner"}
    for path, field in (("users", {"email": "a@example.com"}), ("tokens", {"name": "a"})):
        refused = await admin.post(f"/access/{path}", field | typed)
        page = refused.body.decode()
        assert (refused.status, page.count('id="wrong-roles"'), page.count("token:shop owner")) == (422, 1, 1)
        assert re.findall(r'aria-describedby="([^"]*)" autofocus', page) == ["wrong-roles"]


async def test_a_secret_is_shown_once(house: House, admin: Browser) -> None:
    refused = await admin.post("/access/tokens", {"name": "billing", "namespace": "nonsense"})
    assert (refused.status, "a namespace is token:" in text_of(refused)) == (422, True)
    made = await admin.post("/access/tokens", {"name": HOSTILE, "roles": "* viewer", "days": "3650"})
    assert (made.status, made.headers["cache-control"]) == (200, "no-store")
    assert "alert(1)" in text_of(made)
    [secret] = set(re.findall(r"carillon_[\w-]{43}", made.body.decode()))
    assert (await house.admin.service(secret).get("/whoami")).json["roles"] == {"*": "viewer"}
    listed = await admin.get("/access")
    assert secret not in listed.body.decode()
    assert HOSTILE not in listed.body.decode()
    token_id = next(each["id"] for each in (await house.admin.get("/tokens")).json if each["name"] == HOSTILE)
    for path, typed in ((f"/{token_id}/rotate", {"overlap": "9" * 5_000}), ("", {"name": "x", "days": "9" * 5_000})):
        refused = await admin.post(f"/access/tokens{path}", typed)
        assert (refused.status, "a whole number is needed" in text_of(refused).lower()) == (422, True)
    rotated = await admin.post(f"/access/tokens/{token_id}/rotate", {"overlap": "0"})
    assert rotated.status == 200
    assert (await house.admin.service(secret).get("/whoami")).status == 401
    assert (await admin.post(f"/access/tokens/{token_id}/revoke")).status == 303
    assert (await admin.post(f"/access/tokens/{token_id}/revoke")).status == 404


async def test_acts_of_a_session_are_written_down_with_who_and_how(house: House) -> None:
    browser, _ = await signed_in(house)
    made = await browser.post("/access/users", {"email": "by-session@example.com"})
    user_id = made.headers["location"].partition("?")[0].rpartition("/")[2]
    [record] = (await house.admin.get(f"/audit?on={user_id}")).json
    assert (record["act"], record["outcome"], record["via"]) == ("user.create", "done", "carillon-ui")
    assert (record["who"]["way"], record["who"]["address"]) == ("session", browser.peer)
    assert record["requestId"] == made.headers["x-request-id"]


async def test_everybody_sees_themselves_and_signs_their_browsers_out(house: House, admin: Browser) -> None:
    browser, _ = await signed_in(house, isAdmin=False, name="viewer", roles={"*": "viewer"})
    other = Browser(house.admin.app, cookie=browser.cookie)
    page = text_of(await browser.get("/access"))
    assert ("this one" in page, "* viewer" in page) == (True, True)
    assert all(word not in page for word in ("Create a token", "Add a user", ADMIN))
    for path in ("/access/users", "/access/tokens"):
        assert (await browser.post(path, {"name": "x", "email": "x@example.com"})).status == 403
    own = (await browser.get("/access")).body.decode()
    assert "/delete" not in own
    namespace = re.search(r"token:[0-9a-f-]+", own)
    assert namespace
    [session] = await house.store.sessions.find_of(namespace[0], limit=5)
    assert (await admin.post(f"/access/sessions/{session.id}/delete")).status == 404
    assert (await browser.post(f"/access/sessions/{session.id}/delete")).status == 303
    assert not await is_open(other)


async def test_every_control_has_a_name(admin: Browser) -> None:
    page = await admin.get("/access")
    assert page.status == 200
    assert all(each.get("type") == "hidden" or each.get("name") for each in tags_of(page, "input"))


async def test_another_browser_is_signed_out_with_a_reason_where_one_is_demanded(house: House) -> None:
    app = house.build(replace(house.servers.settings.audit, reasons="required"))
    lost, token_id = await signed_in(house, app)
    secret = (await house.admin.post(f"/tokens/{token_id}/rotate", {"overlapSeconds": 60})).json["token"]
    kept = Browser(app)
    await kept.sign_in(secret)
    page = await kept.get("/access")
    [form] = [each["action"] or "" for each in tags_of(page, "form") if (each.get("action") or "").endswith("/delete")]
    refused = await kept.post(form.removeprefix("/ui"))
    assert (refused.status, "a reason is needed" in text_of(refused).lower()) == (422, True)
    assert (await kept.post(form.removeprefix("/ui"), {"reason": "lost"})).status == 303
    assert (await is_open(lost), await is_open(kept)) == (False, True)


async def test_a_form_asks_for_a_reason_where_it_is_refused_without_one(house: House) -> None:
    token = (await house.admin.post("/tokens", {"name": "old"})).json
    action, fields = f"/ui/access/tokens/{token['id']}/revoke", []
    for reasons in ("required", "optional"):
        browser, _ = await signed_in(
            house, house.build(replace(house.servers.settings.audit, reasons=reasons)), isAdmin=True
        )
        page = (await browser.get("/access")).body.decode()
        fields.append(re.search(rf'action="{action}".*?(<input name="reason"[^>]*>)', page, re.DOTALL))
    assert [found is not None and " required" in found[1] for found in fields] == [True, False]
