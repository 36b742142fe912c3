"""Apps: listed, made, changed, and deleted after their name was typed."""

import secrets

import pytest

from tests.services.api.conftest import House
from tests.services.api.jobs.pages.filled import Shown, look, send_form, viewer_of

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module")]


async def test_an_app_is_made_changed_and_deleted(house: House) -> None:
    name = f"app-{secrets.token_hex(4)}"
    made = await send_form(house.admin, "/apps/new", {"name": name, "bundleId": f"com.example.{name[4:]}"})
    assert made.status == 303, made.body
    place = made.headers["location"].removeprefix("/ui").partition("?")[0]
    assert name in (await look(house.admin, "/apps")).text
    template = {"name": "n", "locale": "en", "body": {"alert": "x"}}
    assert (await house.admin.post(f"{place}/templates", template)).status == 201
    page = await look(house.admin, place)
    assert "This deletes the app with its templates (1 in all locales), its jobs (0), its accounts" in page.text
    assert f"Delete {name}" in page.text and page.fields["name"] == [name]

    saved = await send_form(house.admin, place, {"name": name, "bundleId": f"com.example.x{name[4:]}"})
    assert saved.headers["location"] == f"/ui{place}?said=saved"
    refused = await send_form(house.admin, place, {"name": name, "bundleId": "com"})
    assert refused.status == 422
    again = Shown(refused.body.decode())
    assert again.fields["bundleId"] == ["com"] and any("invalid bundleId" in wrong for wrong in again.wrong)

    assert "Field:" not in again.text
    long = Shown((await send_form(house.admin, place, {"name": name * 9, "bundleId": "com.example.x"})).body.decode())
    assert long.fields["name"] == [name * 9] and any("name" in wrong for wrong in long.wrong)

    unnamed = await send_form(house.admin, f"{place}/delete", {"named": "another", "reason": "over"})
    assert unnamed.status == 422 and (await house.admin.get(place)).status == 200
    deleted = await send_form(house.admin, f"{place}/delete", {"named": name, "reason": "over"})
    assert deleted.headers["location"] == "/ui/apps?said=deleted"
    assert (await house.admin.get(place)).status == 404


async def test_viewers_see_their_apps_and_no_acts(house: House) -> None:
    app_id, other = await house.app(), await house.app()
    viewer = await viewer_of(house, app_id)
    page = await look(viewer, "/apps")
    assert f"/ui/apps/{app_id}" in page.links and f"/ui/apps/{other}" not in page.links
    assert "/ui/apps/new" not in page.links
    app = await look(viewer, f"/apps/{app_id}")
    assert not any("/apps/" in action for action in app.actions)
    assert not any("/jobs/new" in link for link in app.links)
    for place in ("/apps/new", f"/apps/{other}"):
        await look(viewer, place, 403)
