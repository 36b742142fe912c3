"""Cutting tables of recipients of whom each counts once, on a real table."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from services.worker.jobs.cutting import DistinctCuts, PlannedBatch, TableCuts
from shared.audience.rules.audiences import KeyRange
from shared.audience.rules.columns import NamedColumns
from shared.core.errors import Invalid
from shared.drivers.postgres import Audience
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.jobs.rules.jobs import Job
from tests.jobs.made import a_job
from tests.services.api.conftest import _execute

pytestmark = pytest.mark.native

SIZE, ROWS = 20, 300


def _choose(_: object) -> Any:
    raise AssertionError("a table has no header")


NAMED = NamedColumns(_choose, normalize=bytes.lower, ids="recipient")


@pytest_asyncio.fixture
async def tables(push_database: str) -> AsyncIterator[RecipientTables]:
    """Every third row repeats one of 100 before it, in another spelling, and so do the last ones."""
    await _execute(
        push_database,
        "CREATE TABLE once_http (seq_id bigint, recipient text)",
        "CREATE INDEX ON once_http (seq_id)",
        f"INSERT INTO once_http SELECT n, CASE WHEN n % 3 = 0 THEN upper('r' || (n - 2)) ELSE 'r' || n END "
        f"FROM generate_series(1, {ROWS}) n",
        f"INSERT INTO once_http VALUES ({ROWS + 1}, 'x'), ({ROWS + 2}, 'r1'), ({ROWS + 3}, 'X')",
    )
    audience = Audience.open(push_database, pool_size=2, statement_timeout_seconds=10)
    yield RecipientTables.beside(audience)
    await audience.close()


async def cut(tables: RecipientTables, job: Job, last: KeyRange | None = None, *, take: int = 99) -> list[PlannedBatch]:
    cuts = DistinctCuts(tables, TableCuts(tables, page_batches=3))
    found: list[PlannedBatch] = []
    async with aclosing(cuts.pages(job, ROWS + 3, last, SIZE, NAMED)) as pages:
        async for page in pages:
            found += page
            if len(found) >= take:
                break
    return found


async def left_over(tables: RecipientTables, job: Job, batches: list[PlannedBatch]) -> list[str]:
    """The recipients that are not noted as repeats."""
    kept = []
    for batch in batches:
        keys = batch.range
        assert isinstance(keys, KeyRange)
        rows = await tables.read(job.table, job.filters, replace(keys, repeated=()), ["recipient"])
        found = [text.decode() for text, key in zip(rows.columns[0], rows.keys.tolist(), strict=True)
                 if key not in keys.repeated]  # fmt: skip
        assert len(found) == batch.size
        kept += found
    return kept


def a_table_job() -> Job:
    return replace(a_job(), app_name="once", table_kind="http", service="message", filters={})


async def test_a_repeat_is_noted_wherever_its_first_one_stands(tables: RecipientTables) -> None:
    job = a_table_job()
    batches = await cut(tables, job)
    kept = await left_over(tables, job, batches)
    assert len(kept) == len({text.lower() for text in kept}) == 201
    assert kept[:4] == ["r1", "r2", "r4", "r5"], "the first one is the one that counts"
    assert kept[-1] == "x"


async def test_a_plan_that_is_taken_up_again_notes_the_same(tables: RecipientTables) -> None:
    job = a_table_job()
    whole = await cut(tables, job)
    begun = await cut(tables, job, take=4)
    last = begun[-1].range
    assert isinstance(last, KeyRange) and len(begun) < len(whole)
    rest = await cut(tables, job, last)
    assert await left_over(tables, job, [*begun, *rest]) == await left_over(tables, job, whole)


async def test_an_empty_table_has_no_batches(tables: RecipientTables, push_database: str) -> None:
    await _execute(push_database, "DELETE FROM once_http")
    assert await cut(tables, a_table_job()) == []


async def test_a_table_whose_rows_share_a_key_is_refused(tables: RecipientTables, push_database: str) -> None:
    await _execute(push_database, "INSERT INTO once_http VALUES (7, 'somebody else')")
    with pytest.raises(Invalid, match=r"several rows of table .* have the seq_id 7"):
        await cut(tables, a_table_job())
