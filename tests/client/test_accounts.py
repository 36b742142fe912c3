"""Apps, templates, users, tokens and the audit, against the real API."""

import secrets
from typing import Any

import pytest

from carillon import (
    App,
    AsyncCarillon,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StoredTemplate,
    Template,
    Token,
    Unauthorized,
    Unavailable,
    User,
)
from tests.client.both import connect
from tests.client.cutting import CuttingProxy
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

BODY = {"alert": "{{user}} liked it"}


def fresh(prefix: str) -> str:
    return prefix + secrets.token_hex(6)


async def app_of(client: AsyncCarillon) -> str:
    name = fresh("game")
    return (await client.apps.create(name, f"com.example.{name}")).id


def shown(template: StoredTemplate) -> tuple[Any, ...]:
    return template.name, template.locale, template.body, template.defaults


async def test_an_app_is_made_changed_and_deleted(client: AsyncCarillon) -> None:
    name = fresh("game")
    made = await client.apps.create(name, f"com.example.{name}")
    assert (made.name, made.bundle_id, made.created_by) == (name, f"com.example.{name}", ADMIN)
    assert made.created_at == made.updated_at
    assert await client.apps.get(made.id) == made
    with pytest.raises(Conflict):
        await client.apps.create(name, f"com.example.{name}.other")
    with pytest.raises(Invalid):
        await client.apps.create("no name", "com.example.x")
    other = App(name=fresh("game"), bundle_id=f"com.example.{name}.other")
    whole = await client.apps.create(other)
    assert (whole.name, whole.bundle_id, whole.created_by) == (other.name, other.bundle_id, ADMIN)
    changed = await client.apps.update(made.id, name=name, bundle_id=f"com.example.{name}.two")
    assert (changed.id, changed.bundle_id) == (made.id, f"com.example.{name}.two")
    await client.apps.delete(made.id)
    with pytest.raises(NotFound):
        await client.apps.get(made.id)


async def test_lists_read_as_many_pages_as_are_asked_for(client: AsyncCarillon) -> None:
    ids = [await app_of(client) for _ in range(5)]
    assert {app.id async for app in client.apps.list(page_size=2)} >= set(ids)
    first = [app.id async for app in client.apps.list(limit=3, page_size=2)]
    assert len(first) == 3
    assert first == [app.id async for app in client.apps.list()][:3]
    assert [app async for app in client.apps.list(limit=0)] == []


async def test_templates_are_made_changed_and_deleted(client: AsyncCarillon) -> None:
    app_id = await app_of(client)
    like = Template(name="like", locale="en", body=BODY, defaults={"user": "Someone"})
    made = await client.templates.create(app_id, like)
    assert shown(made) == ("like", "en", BODY, {"user": "Someone"})
    with pytest.raises(Conflict):
        await client.templates.create(app_id, Template(name="like", locale="en", body={"alert": "other"}))
    several = await client.templates.create_many(
        app_id, [Template(name="like", locale=locale, body=BODY) for locale in ("pt", "fr")]
    )
    listed = [each async for each in client.templates.list(app_id, page_size=2)]
    assert {each.id for each in listed} == {made.id, *(each.id for each in several)}
    changed = await client.templates.update(app_id, made.id, Template(name="like", locale="en", body={"alert": "!"}))
    assert shown(changed) == ("like", "en", {"alert": "!"}, {"user": "Someone"})
    assert await client.templates.get(app_id, made.id) == changed
    await client.templates.delete(app_id, made.id)
    with pytest.raises(NotFound):
        await client.templates.delete(app_id, made.id)


async def test_a_user_has_the_rights_that_were_given_last(client: AsyncCarillon) -> None:
    app_id, email = await app_of(client), fresh("u") + "@example.com"
    made = await client.users.create(User(email=email, allowed_apps=[app_id], roles={"*": "viewer"}))
    assert (made.email, made.is_admin, made.allowed_apps, made.roles) == (email, False, (app_id,), {"*": "viewer"})
    assert made.id in [each.id async for each in client.users.list(page_size=3)]
    with pytest.raises(Conflict):
        await client.users.create(User(email=email, is_admin=True))
    await client.users.update(made.id, User(email=email, roles={f"app/{app_id}": "operator"}))
    now = await client.users.get(made.id)
    assert (now.allowed_apps, now.roles) == ((), {f"app/{app_id}": "operator"})
    await client.users.delete(made.id)
    with pytest.raises(NotFound):
        await client.users.get(made.id)


async def test_a_token_lets_a_service_in_until_it_is_revoked(client: AsyncCarillon, port: int) -> None:
    issued = await client.tokens.create(Token(name="billing", roles={"*": "viewer"}))
    assert issued.token not in repr(issued)
    assert issued.id in [each.id async for each in client.tokens.list()]
    async with connect(f"http://127.0.0.1:{port}", token=issued.token) as service:
        caller = await service.whoami()
        assert (caller.namespace, caller.name, caller.is_admin) == (f"token:{issued.id}", "billing", False)
        assert caller.roles == {"*": "viewer"}
        with pytest.raises(Forbidden):
            await service.tokens.create(Token(name="more"))
        await client.tokens.revoke(issued.id)
        with pytest.raises(Unauthorized):
            await service.whoami()


async def test_the_reason_of_an_act_is_written_down(client: AsyncCarillon) -> None:
    app_id = await app_of(client)
    await client.apps.delete(app_id, reason="jörg gave it up")
    [record] = [each async for each in client.audit.list(on=app_id, act="app.delete")]
    assert (record.act, record.reason, record.outcome, record.status) == (
        "app.delete", "jörg gave it up", "done", 204,
    )  # fmt: skip
    assert (record.who.name, record.on.kind, record.on.id) == (ADMIN, "app", app_id)
    assert record.via == "carillon-client"
    assert [each async for each in client.audit.list(app_id=app_id, by="token:nobody")] == []


async def test_anybody_may_ask_whether_all_is_well(port: int, each_client: object) -> None:
    async with connect(f"http://127.0.0.1:{port}") as stranger:
        assert await stranger.healthcheck()


async def test_what_has_a_unique_name_is_made_once(cut_off: AsyncCarillon, proxy: CuttingProxy) -> None:
    name, email = fresh("game"), fresh("u") + "@example.com"
    proxy.to_lose = 2
    app = await cut_off.apps.create(name, f"com.example.{name}")
    assert [answer[9:12] for answer in proxy.lost] == [b"201", b"409"]
    assert app.name == name
    proxy.to_lose = 1
    user = await cut_off.users.create(User(email=email, allowed_apps=[app.id], roles={"*": "viewer"}))
    assert (user.email, user.roles) == (email, {"*": "viewer"})
    templates = [Template(name="like", locale=locale, body=BODY) for locale in ("en", "pt")]
    proxy.to_lose = 1
    made = await cut_off.templates.create_many(app.id, templates)
    assert [each.locale for each in made] == ["en", "pt"]
    proxy.to_lose = 1
    other = await cut_off.templates.create(app.id, Template(name="love", locale="en", body=BODY))
    assert {each.id async for each in cut_off.templates.list(app.id)} == {*(each.id for each in made), other.id}


async def test_a_conflict_with_something_else_stays_one(cut_off: AsyncCarillon, proxy: CuttingProxy) -> None:
    name = fresh("game")
    await cut_off.apps.create(name, f"com.example.{name}")
    proxy.to_lose = 1
    with pytest.raises(Conflict):
        await cut_off.apps.create(name, f"com.example.{name}.other")


async def test_a_token_is_not_asked_for_again_where_one_may_have_been_made(
    cut_off: AsyncCarillon, proxy: CuttingProxy, house: House
) -> None:
    name = fresh("service")
    proxy.to_lose = 1
    with pytest.raises(Unavailable, match="after 1 of 5 attempts"):
        await cut_off.tokens.create(Token(name=name))
    assert [each.name async for each in cut_off.tokens.list()].count(name) == 1


async def test_what_was_deleted_by_a_lost_attempt_is_deleted(cut_off: AsyncCarillon, proxy: CuttingProxy) -> None:
    app_id = await app_of(cut_off)
    template = await cut_off.templates.create(app_id, Template(name="like", locale="en", body=BODY))
    proxy.to_lose = 1
    await cut_off.templates.delete(app_id, template.id)
    proxy.to_lose = 1
    await cut_off.apps.delete(app_id)
    assert [answer[9:12] for answer in proxy.lost] == [b"204", b"204"]
