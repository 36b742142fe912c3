"""Lists end by bytes as well as by number, so that nothing that somebody stores can keep a list from being read."""

import json
from datetime import UTC, datetime

import pytest

from shared.accounts.rules.callers import User
from shared.clock.rules.callbacks import HttpCallback
from shared.clock.rules.outcomes import DeadLetter, place_of
from shared.clock.rules.schedules import Definition, Schedule, schedule_id
from shared.drivers.mongo.documents import PAGE_BYTES
from shared.jobs.rules.templates import Template
from shared.store import Store
from tests.jobs.made import a_job

NOW = datetime(2026, 11, 22, tzinfo=UTC)
MEGABYTE = "x" * 1_000_000


@pytest.mark.slow
async def test_templates_of_a_megabyte_are_read_a_few_at_a_time(store: Store) -> None:
    for number in range(100):
        body = {"alert": MEGABYTE}
        await store.templates.add(Template(id=f"{number:03}", app_id="app", name="like", locale=f"{number}", body=body))
    read: list[str] = []
    while page := await store.templates.page("app", after=read[-1] if read else "", limit=1_000):
        assert sum(len(str(each.body)) for each in page) <= PAGE_BYTES
        read += [each.id for each in page]
        assert page.more is (len(read) < 100)
    assert read == [f"{number:03}" for number in range(100)]
    assert len(await store.templates.find_named("app", ["like"])) == 100


async def test_a_page_has_one_item_however_large(store: Store) -> None:
    for number in range(2):
        template = Template(id=f"{number}", app_id="app", name="like", locale=f"{number}", body={"alert": MEGABYTE * 9})
        await store.templates.add(template)
    first = await store.templates.page("app", limit=10)
    assert ([each.id for each in first], first.more) == (["0"], True)
    last = await store.templates.page("app", after="0", limit=10)
    assert ([each.id for each in last], last.more) == (["1"], False)


async def test_lists_of_jobs_are_read_without_contexts(store: Store) -> None:
    jobs = [a_job(context={"a": MEGABYTE}, created_at=number, group_id="large") for number in range(100)]
    for job in jobs:
        await store.jobs.add(job)
    page = await store.job_lists.page_of_app("a", limit=1_000)
    assert [job.id for job in page] == [job.id for job in jobs]
    assert all(job.context == {} for job in page)
    assert not page.more
    assert len(await store.jobs.with_ids([job.id for job in jobs])) == 100
    whole = await store.jobs.with_ids([jobs[0].id], context=True)
    assert whole[jobs[0].id].context == jobs[0].context


@pytest.mark.slow
async def test_schedules_with_the_largest_payloads_are_listed_and_found(store: Store) -> None:
    """A payload of quotes takes twice its size as a text in JSON."""
    payload = json.dumps([""] * 85_000, separators=(",", ":"))
    callback = HttpCallback(payload=payload, url="https://example.com/", method="POST", headers={}, secret="")
    keys = [f"{number:03}" for number in range(200)]
    schedules = [
        Schedule(
            id=schedule_id("ns", key), namespace="ns", key=key, generation="g", digest="d",
            definition=Definition(callback=callback, instants=(NOW,)), created_at=NOW, accepted_at=NOW, sweep_at=NOW,
        )
        for key in keys
    ]  # fmt: skip
    for start in range(0, len(keys), 40):
        await store.schedules.add(schedules[start : start + 40])
    read: list[str] = []
    while page := await store.schedules.page("ns", after=read[-1] if read else "", limit=1_000):
        read += [each.key for each in page]
    assert read == keys
    ids = [schedule_id("ns", key) for key in keys]
    assert len(await store.schedules.many(ids, whole=True)) == 200


@pytest.mark.slow
async def test_users_who_may_use_all_there_is_are_listed(store: Store) -> None:
    apps = tuple(f"00000000-0000-0000-0000-{number:012}" for number in range(26_000))
    for number in range(50):
        await store.users.add(User(id=f"{number:03}", email=f"{number}@example.com", allowed_apps=apps))
    page = await store.users.page(limit=1_000)
    assert 1 <= len(page) < 50 and page.more


async def test_dead_letters_are_listed_to_the_end(store: Store) -> None:
    letters = [
        DeadLetter(
            id=f"{number:04}", death=f"{number:04}",
            namespace="ns", key="k", schedule_id="s", generation="g", due=NOW, died_at=NOW,
            attempts=1, error="e" * 4_000,
        )
        for number in range(1_100)
    ]  # fmt: skip
    await store.dead_letters.add(letters)
    page = await store.dead_letters.page("ns", limit=1_000)
    assert (len(page), page.more) == (1_000, True)
    rest = await store.dead_letters.page("ns", before=place_of(page[-1]), limit=1_000)
    assert (len(rest), rest.more) == (100, False)
