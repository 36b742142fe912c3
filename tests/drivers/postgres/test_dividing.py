"""Keys by time zone: each row in one group, however the table is gone through, and the keys of given users."""

from itertools import chain

import asyncpg
import pytest

from shared.audience.rules.audiences import BEGINNING
from shared.core.errors import Invalid
from shared.drivers.postgres import Audience, statements
from shared.drivers.postgres.statements import DESCRIBE, read_table

pytestmark = pytest.mark.native

TABLE = "game_apns"
TEXTS = ("-0300", "+0100", "-0000", "CET", "", "+01000")


async def filled(owner: "asyncpg.Connection[asyncpg.Record]", rows: int = 60) -> None:
    await owner.execute(
        f"""INSERT INTO {TABLE} (user_id, tz, seq_id, level)
            SELECT 'u' || n / 2, (ARRAY['-0300', '+0100', '-0000', 'CET', '', NULL, '+01000'])[1 + n % 7], n, n % 4
            FROM generate_series(1, {rows}) n"""
    )


async def found(owner: "asyncpg.Connection[asyncpg.Record]", condition: str) -> list[int]:
    rows = await owner.fetch(f"SELECT seq_id FROM {TABLE} WHERE seq_id IS NOT NULL AND {condition} ORDER BY seq_id")
    return [row[0] for row in rows]


@pytest.mark.parametrize("rows", [1, 7, 20, 59, 60, 61])
async def test_a_table_is_gone_through_once(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]", rows: int
) -> None:
    await filled(owner)
    by_text: dict[str | None, list[list[int]]] = {}
    after, last = BEGINNING, False
    while not last:
        part = await audience.divide(TABLE, {"NOTlevel": "3"}, after=after, upto=58, rows=rows)
        assert all(after < key <= part.edge for _, keys in part.keys for key in keys.tolist())
        for text, keys in part.keys:
            by_text.setdefault(text, []).append(keys.tolist())
        after, last = part.edge, part.last
    kept = "level <> 3 AND seq_id <= 58"
    wanted: dict[str | None, str] = {text: f"tz = '{text}'" for text in TEXTS}
    wanted[None] = "tz IS NULL"
    expected = {text: await found(owner, f"{kept} AND {condition}") for text, condition in wanted.items()}
    assert {text: [*chain(*keys)] for text, keys in by_text.items()} == expected


async def test_rows_that_share_a_key_are_never_parted(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await filled(owner)
    await owner.execute(f"UPDATE {TABLE} SET seq_id = 5 WHERE seq_id BETWEEN 5 AND 40; UPDATE {TABLE} SET tz = '-0300'")
    part = await audience.divide(TABLE, {}, after=BEGINNING, upto=60, rows=6)
    [(_, keys)] = part.keys
    assert keys.tolist() == [1, 2, 3, 4] + [5] * 36
    assert (part.edge, part.last) == (5, False)


async def test_an_empty_table_ends_at_once(audience: Audience) -> None:
    part = await audience.divide(TABLE, {}, after=BEGINNING, upto=0, rows=5)
    assert (part.keys, part.last) == ([], True)


async def test_chosen_keys_are_read_with_what_the_filters_keep(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await filled(owner)
    await owner.execute(f"UPDATE {TABLE} SET seq_id = 9 WHERE seq_id = 10; DELETE FROM {TABLE} WHERE seq_id = 13")
    every = await audience.read_keys(TABLE, {"NOTlevel": "3"}, [1, 3, 4, 9, 9, 13, 60])
    assert every.keys.tolist() == [1, 4, 9, 9, 60]
    some = await audience.read_keys(TABLE, {"NOTlevel": "3"}, [1, 3, 4, 9, 9, 13, 60], limit=3)
    assert some.keys.tolist() == [1, 4, 9, 9]
    assert len(await audience.read_keys(TABLE, {}, [])) == 0


async def test_the_keys_of_users_and_how_many_of_them_are_known(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    await filled(owner)
    part = await audience.divide_users(TABLE, ["u1", "u2", "u3", "nobody", "u2"], limit=6)
    assert part is not None
    assert {text: keys.tolist() for text, keys in part.keys} == {
        "-0000": [2], "CET": [3], "": [4], None: [5], "+01000": [6], "-0300": [7]
    }  # fmt: skip
    assert part.users == 3
    assert await audience.divide_users(TABLE, ["u1", "u2", "u3"], limit=5) is None


@pytest.mark.parametrize("unique", [False, True])
async def test_only_a_table_without_a_unique_key_is_searched_for_shared_ones(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]", unique: bool
) -> None:
    await filled(owner)
    if unique:
        await owner.execute(f"CREATE UNIQUE INDEX ON {TABLE} (seq_id)")
    else:
        await owner.execute(f"INSERT INTO {TABLE} (user_id, seq_id) VALUES ('other', 2)")
    assert (read_table(TABLE, await owner.fetch(DESCRIBE, f'"{TABLE}"')).columns["seq_id"].unique) is unique
    if unique:
        assert await audience.divide_users(TABLE, ["u1"], limit=9) is not None
    else:
        with pytest.raises(Invalid, match="several rows"):
            await audience.divide_users(TABLE, ["u1"], limit=9)


async def test_scattered_keys_are_found_by_the_index(owner: "asyncpg.Connection[asyncpg.Record]") -> None:
    """One in forty-five of a table that is read for every batch."""
    await filled(owner, 200_000)
    await owner.execute(f"ANALYZE {TABLE}")
    known = read_table(TABLE, await owner.fetch(DESCRIBE, f'"{TABLE}"'))
    keys = [*range(1, 45 * 1_000, 45)]
    plan = await owner.fetch(f"EXPLAIN {statements.read_keys(known, [])}", keys[0] - 1, keys[-1], 5_000, keys)
    assert "Seq Scan" not in "\n".join(row[0] for row in plan)
