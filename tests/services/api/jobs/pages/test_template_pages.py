"""Templates: listed by name, shown in all locales, and edited beside what becomes of them."""

import pytest

from tests.services.api.conftest import House
from tests.services.api.jobs.pages.filled import Shown, look, send_form, viewer_of

pytestmark = [pytest.mark.repeats, pytest.mark.asyncio(loop_scope="module")]

HOSTILE = '<script>alert(1)</script>/"&'


async def test_templates_are_listed_by_name_with_their_locales(house: House) -> None:
    app_id = await house.app_with_template()
    for locale in ("pt", "de"):
        await house.admin.post(f"/apps/{app_id}/templates", {"name": "like", "locale": locale, "body": {"alert": "x"}})
    await house.admin.post(f"/apps/{app_id}/templates", {"name": "other", "locale": "de", "body": {"alert": "y"}})

    page = await look(house.admin, f"/templates?app={app_id}")
    assert "like en, de, pt" in page.text
    assert "other de no English text: no push can send it" in page.text
    assert f"/ui/templates/{app_id}/named?name=like" in page.links
    assert f"/ui/jobs?app={app_id}&template=like" in page.links
    found = await look(house.admin, f"/templates?app={app_id}&q=OTH")
    assert "other" in found.text and "like" not in found.text


async def test_an_app_without_templates_says_how_to_make_one(house: House) -> None:
    app_id = await house.app()
    page = await look(house.admin, f"/templates?app={app_id}")
    assert "carillon templates create" in page.text
    assert f"/ui/templates/{app_id}/new" in page.links


async def test_a_template_shows_what_its_locales_lack(house: House) -> None:
    app_id = await house.app_with_template()
    other = {"name": "like", "locale": "PT", "body": {"alert": "{{what}}"}, "defaults": {}}
    await house.admin.post(f"/apps/{app_id}/templates", other)

    page = await look(house.admin, f"/templates/{app_id}/named?name=like")
    assert "The English text has {{user}}, this one does not." in page.wrong
    assert "This text has {{what}}, the English one does not." in page.wrong
    assert not any("No device" in wrong for wrong in page.wrong)
    await house.admin.post(f"/apps/{app_id}/templates", other | {"locale": "pt"})
    page = await look(house.admin, f"/templates/{app_id}/named?name=like")
    assert len([wrong for wrong in page.wrong if "another text has the same locale" in wrong]) == 1
    assert page.text.index("{{user}} likes it") < page.text.index("PT")
    shown = (await house.admin.get(f"/ui/templates/{app_id}/named?name=like")).body.decode()
    assert ('<mark class="wait">{{what}}</mark>' in shown, "<mark>{{user}}</mark>" in shown) == (True, True)
    await look(house.admin, f"/templates/{app_id}/named?name=no-such", 404)


async def test_a_template_is_made_changed_and_deleted(house: House) -> None:
    app_id = await house.app()
    fields = {"name": "hello/there", "locale": "en", "body": '{"alert": "{{a}}!"}', "defaults": '{"a": "A"}'}
    made = await send_form(house.admin, f"/templates/{app_id}/new", fields)
    assert (made.status, made.headers["location"]) == (
        303,
        f"/ui/templates/{app_id}/named?name=hello%2Fthere&said=made",
    )
    page = await look(house.admin, made.headers["location"].removeprefix("/ui"))
    assert "Created." in page.text and "{{a}}!" in page.text

    [template] = (await house.admin.get(f"/apps/{app_id}/templates")).json
    place = f"/templates/{app_id}/edit/{template['id']}"
    editor = await look(house.admin, place)
    assert editor.fields["locale"] == ["en"] and '"alert": "A!"' in editor.text
    saved = await send_form(house.admin, place, fields | {"body": '{"alert": "B"}'})
    assert saved.status == 303
    assert (await house.admin.get(f"/apps/{app_id}/templates")).json[0]["body"] == {"alert": "B"}

    gone = await send_form(house.admin, f"/templates/{app_id}/{template['id']}/delete", {"reason": "old"})
    assert gone.headers["location"] == f"/ui/templates?app={app_id}&said=deleted"
    assert (await house.admin.get(f"/apps/{app_id}/templates")).json == []


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("body", '{"alert": "{{open"}', "opens a tag"),
        ("body", '{"alert": ', "this is not JSON: at line 1, column 10, a value is missing"),
        ("body", '{"a": 1, "a": 2}', "occurs twice"),
        ("defaults", "[1]", "an object is needed"),
        ("locale", "longer than ten", "1 to 10 characters"),
    ],
)
async def test_a_refusal_stands_beside_its_field_with_what_was_typed(
    house: House, field: str, typed: str, said: str
) -> None:
    app_id = await house.app()
    fields = {"name": "n", "locale": "en", "body": '{"alert": "x"}', "defaults": "{}", "context": '{"k": 1}'}
    reply = await send_form(house.admin, f"/templates/{app_id}/new", fields | {field: typed})
    page = type(await look(house.admin, "/apps"))(reply.body.decode())
    assert reply.status == 422
    assert any(said in wrong for wrong in page.wrong), page.wrong
    assert page.fields[field] == [typed]
    assert f'aria-describedby="wrong-{field}"' in reply.body.decode()
    assert page.fields["context"] == ['{"k": 1}']
    assert (await house.admin.get(f"/apps/{app_id}/templates")).json == []


async def test_a_name_that_is_taken_is_said_without_the_name_of_an_index(house: House) -> None:
    app_id = await house.app_with_template()
    page = f"/templates/{app_id}/new"
    refused = await send_form(house.admin, page, {"name": "like", "locale": "en", "body": '{"alert": "x"}'})
    assert refused.status == 409
    told = Shown(refused.body.decode())
    assert "has a template with this name and locale" in told.text and "name_locale_app" not in told.text


async def test_what_becomes_of_a_text_is_a_part_for_scripts_and_a_page_for_browsers(house: House) -> None:
    app_id = await house.app()
    place = f"/templates/{app_id}/new/rendered"
    fields = {"name": "n", "locale": "en", "body": '{"alert": "Hi {{a}}{{b}}"}', "context": '{"a": "<b>Ana"}'}
    part = await send_form(house.admin, place, fields, hx_request="true")
    assert part.status == 200 and b"<html" not in part.body
    assert b"Hi &lt;b&gt;Ana" in part.body and b"{{b}}" in part.body

    whole = await send_form(house.admin, place, fields)
    assert whole.status == 200 and b"<html" in whole.body and b"Hi &lt;b&gt;Ana" in whole.body
    for headers in ({"hx_request": "true"}, {}):
        assert (await send_form(house.admin, place, {}, **headers)).status == 200
    broken = await send_form(house.admin, place, fields | {"context": "{"}, hx_request="true")
    assert broken.status == 200 and b"not JSON" in broken.body
    assert (await house.admin.get(f"/apps/{app_id}/templates")).json == []


async def test_viewers_read_templates_and_change_none(house: House) -> None:
    app_id = await house.app_with_template()
    viewer = await viewer_of(house, app_id)
    page = await look(viewer, f"/templates/{app_id}/named?name=like")
    assert "{{user}} likes it" in page.text
    assert not any("delete" in action or "edit" in action for action in page.actions)
    assert not any("/new" in link or "/edit" in link for link in page.links)
    await look(viewer, f"/templates/{app_id}/new", 403)
    refused = await send_form(viewer, f"/templates/{app_id}/new", {"name": "n", "locale": "en", "body": '{"a": 1}'})
    assert refused.status == 403


async def test_hostile_names_are_text(house: House) -> None:
    app_id = await house.app()
    fields = {"name": HOSTILE, "locale": "en", "body": '{"alert": "</pre><script>alert(2)</script>"}'}
    made = await send_form(house.admin, f"/templates/{app_id}/new", fields)
    for place in (made.headers["location"].removeprefix("/ui"), f"/templates?app={app_id}", f"/jobs/new?app={app_id}"):
        page = await look(house.admin, place)
        assert HOSTILE in page.text
        assert all(source.startswith("/ui/files/") for source in page.scripts)
