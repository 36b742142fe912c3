"""Tables of recipients: columns that are chosen by name, read range by range."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.audience.rules.audiences import BEGINNING, KeyRange
from shared.audience.rules.devices import Cut
from shared.core.errors import Invalid
from shared.drivers.postgres import Audience, statements
from shared.drivers.postgres.asking import TableRows, table_rows_of
from shared.drivers.postgres.recipient_tables import RecipientTables
from shared.drivers.postgres.statements import DESCRIBE, read_table

TABLE = "game_smtp"
ODD = 'od"d $1 %s; --'
ALL = KeyRange(BEGINNING, 2**63 - 1)

texts = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4) | st.just("'; DROP --")
rows = st.lists(st.tuples(st.none() | st.integers(-5, 20), texts, texts, st.none() | st.integers(0, 9)), max_size=30)


def as_rows(found: TableRows) -> list[tuple[Any, ...]]:
    columns = [[text.decode() for text in column] for column in found.columns]
    return list(zip(found.keys.tolist(), *columns, strict=True))


@pytest.fixture
async def people(owner: Any) -> Any:
    """A table of recipients: no column of a push, and names that need quotes."""
    await owner.execute(f"""
        CREATE TABLE {TABLE} (seq_id bigint, "Recipient" text, "od""d $1 %s; --" text, level integer, text_0 date);
        CREATE INDEX ON {TABLE} (seq_id)""")
    return owner


@pytest.fixture
async def tables(audience: Audience) -> RecipientTables:
    return RecipientTables.beside(audience)


@pytest.mark.native
async def test_instants_are_in_utc_whatever_the_database_sets(
    push_database: str, owner: Any, tables: RecipientTables
) -> None:
    database = push_database.rpartition("/")[2]
    await owner.execute(f"""
        ALTER DATABASE "{database}" SET timezone = 'Asia/Tokyo';
        CREATE TABLE {TABLE} (seq_id bigint, "Recipient" text, at timestamptz);
        INSERT INTO {TABLE} VALUES (1, 'a', '2027-03-28 00:30Z'), (2, 'b', '2027-03-27 15:30Z')""")
    found = await tables.read(TABLE, {"at": "2027-03-28 00:30"}, ALL, ["at", "recipient"])
    assert as_rows(found) == [(1, "2027-03-28 00:30:00+00", "a")]


@pytest.mark.native
@given(table=rows, after=st.integers(-6, 20), data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_chosen_columns_of_a_range_are_what_was_put_in(
    tables: RecipientTables, people: Any, table: list[tuple[Any, ...]], after: int, data: st.DataObject
) -> None:
    upto = data.draw(st.integers(after, 21))
    await people.execute(f"TRUNCATE {TABLE}")
    await people.copy_records_to_table(TABLE, records=table, columns=("seq_id", "Recipient", ODD, "level"))
    found = await tables.read(TABLE, {"NOTlevel": "3"}, KeyRange(after, upto), [ODD, "level", "recipient"])
    kept = [row for row in table if row[0] is not None and after < row[0] <= upto and row[3] not in {None, 3}]
    expected = [(key, odd or "", str(level), recipient or "") for key, recipient, odd, level in kept]
    assert as_rows(found) == sorted(expected, key=lambda row: (row[0], [text.encode() for text in row[1:]]))


@pytest.mark.native
async def test_a_table_of_recipients_is_cut_and_read_to_a_limit(tables: RecipientTables, people: Any) -> None:
    await people.execute(
        f"""INSERT INTO {TABLE} (seq_id, "Recipient") SELECT i / 2, 'r' || i FROM generate_series(2, 21) i"""
    )
    assert await tables.highest(TABLE) == 10
    cuts = await tables.cut(TABLE, {}, after=BEGINNING, upto=10, size=5, batches=9)
    assert cuts[0] == Cut(3, 6)
    found = await tables.read(TABLE, {}, KeyRange(0, 10), ["recipient"], limit=3)
    assert as_rows(found) == [(1, "r2"), (1, "r3"), (2, "r4"), (2, "r5")], "and all that share the last one's key"


@pytest.mark.native
async def test_columns_are_told_as_a_header_would_name_them(tables: RecipientTables, people: Any) -> None:
    assert await tables.columns(TABLE) == ("seq_id", "recipient", ODD, "level", "text_0")
    await people.execute(f"INSERT INTO {TABLE} (seq_id, text_0) VALUES (1, '2026-11-23')")
    assert as_rows(await tables.read(TABLE, {}, ALL, ["text_0", "text_0"])) == [(1, "2026-11-23", "2026-11-23")]


@pytest.mark.native
async def test_what_cannot_be_read_is_found_before_there_is_a_job(tables: RecipientTables, people: Any) -> None:
    await tables.check(TABLE, {"level": "1"}, ["recipient", ODD])
    for column in ("unknown", 'recipient"; DROP TABLE x; --', "Recipient ", ""):
        with pytest.raises(Invalid, match="has no column") as refused:
            await tables.check(TABLE, {}, [column])
        assert refused.value.field == "recipientColumn"
        with pytest.raises(Invalid, match="has no column"):
            await tables.read(TABLE, {}, ALL, [column])
    with pytest.raises(Invalid) as refused:
        await tables.check(TABLE, {"level": "x"}, ["recipient"])
    assert refused.value.field == "filters.level"
    await people.execute(f'ALTER TABLE {TABLE} ADD "RECIPIENT" text')
    with pytest.raises(Invalid, match="several columns"):
        await tables.check(TABLE, {}, ["recipient"])
    await tables.check(TABLE, {}, ["RECIPIENT"])


@pytest.mark.native
async def test_a_table_of_recipients_is_no_push_table(audience: Audience, tables: RecipientTables, people: Any) -> None:
    with pytest.raises(Invalid, match="lacks the columns user_id, token, locale, tz"):
        await audience.check(TABLE, {})
    with pytest.raises(Invalid, match="lacks the columns"):
        await audience.cut(TABLE, {}, after=0, upto=9, size=5, batches=2)
    await people.execute(f"ALTER TABLE {TABLE} DROP seq_id")
    with pytest.raises(Invalid, match="lacks the columns seq_id") as refused:
        await tables.columns(TABLE)
    assert refused.value.field == "app"


@pytest.mark.native
async def test_a_column_that_goes_while_a_job_runs_is_looked_up_again(tables: RecipientTables, people: Any) -> None:
    await people.execute(f"""INSERT INTO {TABLE} (seq_id, "Recipient") VALUES (1, 'a')""")
    await tables.read(TABLE, {}, ALL, ["recipient"])
    await people.execute(f'ALTER TABLE {TABLE} RENAME "Recipient" TO "RECIPIENT"')
    assert as_rows(await tables.read(TABLE, {}, ALL, ["recipient"])) == [(1, "a")]
    await people.execute(f'ALTER TABLE {TABLE} DROP "RECIPIENT"')
    with pytest.raises(Invalid, match='no column "recipient"'):
        await tables.read(TABLE, {}, ALL, ["recipient"])


@pytest.mark.native
async def test_chosen_columns_are_read_in_the_order_of_the_index(people: Any) -> None:
    await people.execute(f"INSERT INTO {TABLE} (seq_id) SELECT generate_series(1, 20000); ANALYZE {TABLE}")
    known = read_table(TABLE, await people.fetch(DESCRIBE, TABLE), ())
    plan = await people.fetch(
        f"EXPLAIN {statements.read_columns(known, [], columns=['Recipient', ODD])}", 0, 20_000, 100
    )
    steps = "\n".join(row[0] for row in plan)
    assert "Index Scan" in steps
    assert "Sort" not in steps


def test_nobody_has_empty_columns() -> None:
    assert table_rows_of([{"seq_id": None, "text_0": None, "text_1": None}], ["a", "b"]).columns == ([], [])
