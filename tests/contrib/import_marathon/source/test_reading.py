"""Reading a Marathon database: all rows of one moment in bounded pages, and clear words for what is none."""

import uuid
from typing import Any

import pytest

from carillon_imports.marathon.source import MAX_JSON_BYTES, PAGE, JobRow, TemplateRow, open_source
from shared.core.errors import CarillonError, Invalid, Unavailable
from tests.contrib.import_marathon.source.source import Source

pytestmark = [pytest.mark.imports, pytest.mark.native]


async def the_job(url: str) -> JobRow:
    async with open_source(url) as marathon:
        ((row,),) = [page async for page in marathon.jobs()]
        return row


async def the_template(url: str) -> TemplateRow:
    async with open_source(url) as marathon:
        ((row,),) = [page async for page in marathon.templates()]
        return row


async def test_what_is_unset_comes_as_marathon_shows_it(source: Source, push_database: str) -> None:
    unset: dict[str, Any] = dict.fromkeys(
        (
            "completed_at", "expires_at", "starts_at", "total_batches", "total_tokens", "metadata", "feedbacks",
            "status", "past_time_strategy", "csv_path", "control_group", "control_group_csv_path", "created_by",
            "job_group_id", "service", "created_at", "updated_at",
        )
    )  # fmt: skip
    await source.job(await source.app(), **unset)
    row = await the_job(push_database)
    numbers = (row.completed_at, row.expires_at, row.starts_at, row.total_batches, row.total_tokens, row.control_group)
    assert set(numbers) == {0}
    assert (row.created_at, row.updated_at) == (0, 0)
    texts = (row.status, row.past_time_strategy, row.csv_path, row.control_group_csv_path, row.created_by, row.service)
    assert set(texts) == {""}
    assert (row.metadata, row.feedbacks) == ("{}", "{}")
    assert row.job_group_id == str(uuid.UUID(int=0))


async def test_a_share_is_the_number_that_was_meant(source: Source, push_database: str) -> None:
    await source.job(await source.app(), control_group=0.2)
    assert (await the_job(push_database)).control_group == 0.2


async def test_json_that_is_too_large_is_not_read(source: Source, push_database: str) -> None:
    template = await source.template(await source.app(), body={"alert": "x" * MAX_JSON_BYTES})
    row = await the_template(push_database)
    assert (row.body, row.defaults) == (None, None)
    await source.change("templates", template, body={"alert": "x" * (MAX_JSON_BYTES - 100)})
    row = await the_template(push_database)
    assert row.body is not None
    assert len(row.body) > MAX_JSON_BYTES - 100


async def test_pages_are_bounded_and_of_one_moment(source: Source, push_database: str) -> None:
    made = {await source.user(f"u{number}@example.com") for number in range(PAGE * 2 + 1)}
    async with open_source(push_database) as marathon:
        pages = marathon.users()
        first = await anext(pages)
        for number in range(2):
            await source.user(f"later{number}@example.com")
        await source.connection.execute("DELETE FROM users WHERE email = 'u0@example.com'")
        others = [page async for page in pages]
        assert (await marathon.counts())["users"] == len(made)
    assert [len(first), *map(len, others)] == [PAGE, PAGE, 1]
    assert {row.id for page in [first, *others] for row in page} == made


async def refused(url: str) -> CarillonError:
    with pytest.raises(CarillonError) as caught:
        async with open_source(url):
            pass
    return caught.value


async def test_a_database_without_its_tables_is_none_of_marathons(push_database: str) -> None:
    error = await refused(push_database)
    assert isinstance(error, Invalid)
    assert str(error) == 'this is no Marathon database: it has no table "apps"'


async def test_an_old_release_is_told_to_migrate_first(source: Source, push_database: str) -> None:
    await source.connection.execute("ALTER TABLE jobs DROP COLUMN job_group_id, DROP COLUMN control_group")
    error = await refused(push_database)
    assert isinstance(error, Invalid)
    assert str(error).startswith('its table "jobs" has no control_group, job_group_id: ')


async def test_a_user_that_is_not_known_is_refused(push_database: str) -> None:
    error = await refused(push_database.replace("://postgres", "://nobody-of-that-name"))
    assert isinstance(error, Invalid)
    assert str(error).startswith("the Marathon database refuses this user: ")


async def test_a_user_that_may_not_read_is_told_so(source: Source, push_database: str) -> None:
    role = f"r{uuid.uuid4().hex}"
    await source.connection.execute(f"CREATE ROLE {role} LOGIN")
    try:
        with pytest.raises(Invalid) as caught:
            async with open_source(push_database.replace("://postgres", f"://{role}")) as marathon:
                await marathon.counts()
    finally:
        await source.connection.execute(f"DROP ROLE {role}")
    assert caught.value.reason.startswith("this user may not read the Marathon database: ")


async def test_a_database_that_is_not_there_is_told_by_name(push_database: str) -> None:
    error = await refused(f"{push_database}_of_nobody")
    assert isinstance(error, Invalid)
    assert "_of_nobody" in str(error)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    error = await refused("postgresql://marathon@127.0.0.1:1/marathon")
    assert isinstance(error, Unavailable)
    assert str(error).startswith("the Marathon database does not answer: ")


@pytest.mark.parametrize("url", ["mysql://marathon@127.0.0.1/marathon", "marathon", "postgresql://h:port/x", ""])
async def test_what_is_no_url_is_told_so(url: str) -> None:
    error = await refused(url)
    assert isinstance(error, Invalid)
    assert error.field == "--from"
