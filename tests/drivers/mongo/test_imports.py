"""What an import needs of the store: many at once, only what is free, and nothing over what was changed."""

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from shared.accounts.rules.apps import App
from shared.accounts.rules.callers import User
from shared.core.documents import Position
from shared.core.errors import Conflict
from shared.jobs.rules.batches import Totals
from shared.jobs.rules.jobs import Job, JobStatus
from shared.jobs.rules.templates import Template
from shared.push.rules.records import APNS
from shared.store import Store

pytestmark = pytest.mark.native


def an_app(number: int, **fields: Any) -> App:
    common = {"id": f"a{number}", "name": f"game-{number}", "bundle_id": f"com.example.a{number}", "created_by": "me"}
    return App(**(common | {"created_at": 1, "updated_at": 1} | fields))


def a_job(**fields: Any) -> Job:
    return Job(
        id=str(uuid.uuid4()), app_id="a", app_name="game", service=APNS, template_names=("like",),
        created_by="me", group_id="g", status=JobStatus.COMPLETED, open=False, totals=Totals(1, 1, 5, 5), **fields,
    )  # fmt: skip


async def test_notes_are_kept_by_kind_and_id(store: Store) -> None:
    await store.imports.note("apps", {})
    await store.imports.note("apps", {"1": "x", "2": "y"})
    await store.imports.note("apps", {"2": "z"})
    assert await store.imports.find_noted("apps", ["1", "2", "3"]) == {"1": "x", "2": "z"}
    assert await store.imports.find_noted("users", ["1"]) == {}


async def test_of_many_those_are_added_whose_keys_are_free(store: Store) -> None:
    first, same_id, same_bundle, other = an_app(1), an_app(2, id="a1"), an_app(3, bundle_id="com.example.a1"), an_app(4)
    assert await store.apps.add_new([first]) == set()
    assert await store.apps.add_new([same_id, same_bundle, other]) == {0, 1}
    assert await store.apps.with_ids(["a1", "a3", "a4"]) == {"a1": first, "a4": other}
    assert await store.apps.ids_of(["com.example.a1", "com.example.a3"]) == {"com.example.a1": "a1"}

    user = User(id="u", email="a@example.com", allowed_apps=("a1",))
    assert await store.users.add_new([user, replace(user, id="v")]) == {1}
    assert await store.users.with_ids(["u", "v"]) == {"u": user}

    template = Template(id="t", app_id="a1", name="like", locale="en", body={"a.b": {"$c": 1}})
    others = [replace(template, id="s"), replace(template, id="r", locale="pt")]
    assert await store.templates.add_new([template, *others]) == {1}
    assert await store.templates.with_ids(["t", "s", "r"]) == {"t": template, "r": others[1]}
    found = await store.templates.ids_of(["a1"], ["like", "love"])
    assert found == {("a1", "like", "en"): "t", ("a1", "like", "pt"): "r"}


async def test_what_was_changed_meanwhile_is_not_replaced(store: Store) -> None:
    old, other = an_app(1), an_app(2)
    await store.apps.add_new([old, other])
    new = replace(old, name="new", updated_at=2)
    assert await store.apps.replace(old, new)
    assert not await store.apps.replace(old, replace(old, name="newer", updated_at=3))
    assert await store.apps.get("a1") == new
    with pytest.raises(Conflict):
        await store.apps.replace(new, replace(new, bundle_id=other.bundle_id))

    user = User(id="u", email="a@example.com", updated_at=1)
    await store.users.add_new([user])
    assert await store.users.replace(user, replace(user, is_admin=True, updated_at=2))
    assert not await store.users.replace(user, user)

    template = Template(id="t", app_id="a1", name="like", locale="en", body={"a": "b"}, updated_at=1)
    await store.templates.add_new([template])
    assert await store.templates.replace(template, replace(template, locale="pt", updated_at=2))
    assert not await store.templates.replace(template, template)


async def test_closed_jobs_come_with_their_feedback_and_keep_what_is_counted_here(store: Store) -> None:
    job, running = a_job(feedbacks={"ack": 3, "a.b$": 1}), replace(a_job(), open=True, status=JobStatus.RUNNING)
    await store.jobs.add(running)
    assert await store.closed_jobs.add([job, running]) == {1}
    assert await store.jobs.with_ids([job.id, "none"]) == {job.id: job}
    assert not await store.open_jobs.has_open("none")
    assert await store.feedbacks.flush("t/0", Position(0), Position(9), {(job.id, "ack"): 4})
    later = replace(job, feedbacks={"ack": 5, "a.b$": 2}, control_group_csv_path="b/k", updated_at=7)
    assert await store.closed_jobs.replace(later)
    assert await store.jobs.get(job.id) == replace(later, feedbacks={"ack": 7, "a.b$": 2})
    assert await store.closed_jobs.replace(replace(later, feedbacks={}))
    assert not await store.closed_jobs.replace(replace(running, open=False))
    assert await store.jobs.get(running.id) == running
