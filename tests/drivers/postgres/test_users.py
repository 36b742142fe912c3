"""The devices of given users: each once, however the users are spelled, and found without reading the table."""

from functools import partial

import asyncpg
import pytest

from shared.audience.rules.columns import NORMAL_FORMS
from shared.core.errors import Invalid
from shared.drivers.postgres import DEVICES_AT_ONCE, USER, Audience, statements
from shared.drivers.postgres.statements import DESCRIBE, read_table
from tests.drivers.postgres.rows import Row, rows_of

pytestmark = pytest.mark.native

TABLE = "game_apns"


async def devices(audience: Audience, table: str, users: list[str], *, limit: int = DEVICES_AT_ONCE) -> list[Row]:
    found = await audience.read_users(table, users, limit=limit)
    assert found is not None
    return rows_of(found)


async def test_all_devices_of_the_users_come_in_the_order_of_their_keys(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await owner.executemany(
        f"INSERT INTO {TABLE} (user_id, token, locale, tz, seq_id) VALUES ($1, $2, 'en', '-0300', $3)",
        [("ann", "t3", 3), ("bob", "t2", 2), ("ann", "t1", 1), ("cid", "t4", 4), ("ann", "none", None)],
    )

    rows = await devices(audience, TABLE, ["bob", "ann", "nobody", "ann"])

    assert rows == [
        (1, "ann", "t1", "en", "-0300"),
        (2, "bob", "t2", "en", "-0300"),
        (3, "ann", "t3", "en", "-0300"),
    ]


async def test_two_spellings_of_one_user_give_a_device_once(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await owner.execute("CREATE TABLE typed_apns (LIKE game_apns); ALTER TABLE typed_apns DROP user_id")
    await owner.execute(
        "ALTER TABLE typed_apns ADD user_id integer; INSERT INTO typed_apns (user_id, seq_id) VALUES (7, 1)"
    )

    assert [row[:2] for row in await devices(audience, "typed_apns", ["7", "07", " 7"])] == [(1, "7")]


async def test_more_devices_than_were_asked_for_are_not_read(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await owner.execute(f"INSERT INTO {TABLE} (user_id, seq_id) SELECT 'ann', n FROM generate_series(1, 4) n")

    assert len(await devices(audience, TABLE, ["ann"], limit=4)) == 4
    assert await audience.read_users(TABLE, ["ann"], limit=3) is None


async def test_the_users_of_a_batch_are_looked_up_by_the_index(owner: "asyncpg.Connection[asyncpg.Record]") -> None:
    await owner.execute(f"INSERT INTO {TABLE} (user_id, seq_id) SELECT n::text, n FROM generate_series(1, 200000) n")
    await owner.execute(f"CREATE INDEX ON {TABLE} (user_id); ANALYZE {TABLE}")
    statement = statements.of_users(read_table(TABLE, await owner.fetch(DESCRIBE, TABLE)))
    await owner.execute("SET plan_cache_mode = force_custom_plan")

    plan = await owner.fetch(f"EXPLAIN {statement}", [str(n) for n in range(0, 200_000, 40)], DEVICES_AT_ONCE)

    told = "\n".join(row[0][:100] for row in plan)
    assert "Seq Scan" not in told, told
    assert "Index" in told, told


@pytest.mark.parametrize(
    ("column_type", "spellings", "different"),
    [
        ("integer", ["7", "07", " 7", "+7"], "8"),
        ("bigint", ["-1", " -01 "], "-2"),
        ("uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "{a0eebc999c0b4ef8-bb6d6bb9bd380a11}"], f"{0:032}"),
    ],
)
async def test_the_normal_form_agrees_with_what_the_column_takes_for_equal(
    audience: Audience,
    owner: "asyncpg.Connection[asyncpg.Record]",
    column_type: str,
    spellings: list[str],
    different: str,
) -> None:
    await owner.execute(f"ALTER TABLE {TABLE} ALTER user_id TYPE {column_type} USING user_id::{column_type}")
    for key, user in enumerate([spellings[0], different]):
        await owner.execute(f"INSERT INTO {TABLE} (user_id, seq_id) VALUES ($1::text::{column_type}, {key})", user)
    assert await audience.user_type(TABLE) == column_type
    normalize = NORMAL_FORMS[column_type]
    assert normalize is not None
    forms = [normalize(user.encode()) for user in spellings]
    assert {*forms} != {normalize(different.encode())}
    assert len({*forms}) == 1
    for user in spellings:
        assert [row[0] for row in await devices(audience, TABLE, [user])] == [0]


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("character(4)", "is bpchar;"),
        ("numeric", "is numeric;"),
        ("name", "is name;"),
        ("mood", "is mood;"),
        ("text COLLATE caseless", "is text with a nondeterministic collation;"),
        ("caseless_text", "is text with a nondeterministic collation;"),
    ],
)
async def test_files_cannot_name_users_whose_equality_we_cannot_repeat(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]", column: str, told: str
) -> None:
    if "caseless" in column:
        await _make_caseless(owner)
    await owner.execute(f"ALTER TABLE {TABLE} DROP user_id; ALTER TABLE {TABLE} ADD user_id {column}")
    for ask in (partial(audience.check, TABLE, {}, walks=USER), partial(audience.user_type, TABLE)):
        with pytest.raises(Invalid, match=told) as raised:
            await ask()
        assert raised.value.field == "app"
        assert 'column "user_id"' in raised.value.reason
    await audience.check(TABLE, {})


async def _make_caseless(owner: "asyncpg.Connection[asyncpg.Record]") -> None:
    try:
        await owner.execute("""
            CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
            CREATE DOMAIN caseless_text AS text COLLATE caseless""")
    except asyncpg.FeatureNotSupportedError:
        pytest.skip("this PostgreSQL is built without ICU")


async def test_an_id_that_the_column_cannot_hold_costs_nobody_else(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await owner.execute(f"ALTER TABLE {TABLE} ALTER user_id TYPE bigint USING user_id::bigint")
    await owner.execute(f"INSERT INTO {TABLE} (user_id, seq_id) VALUES (1, 1), (2, 2)")
    users = ["1", "42.0", "ann", str(2**64), "2"]

    assert [row[0] for row in await devices(audience, TABLE, users)] == [1, 2]
    divided = await audience.divide_users(TABLE, users, limit=9)
    assert divided is not None
    assert divided.users == 2
