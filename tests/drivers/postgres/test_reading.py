"""Devices as the server finds them, and its answer, taken apart."""

import asyncpg
import numpy as np
import pytest

from shared.audience.rules.audiences import KeyRange
from shared.core.errors import Invalid
from shared.drivers.postgres import Audience, statements
from shared.drivers.postgres.asking import devices_of
from shared.drivers.postgres.statements import DESCRIBE, read_table
from tests.drivers.postgres.rows import rows_of


def answer(*, keys: list[int], **texts: bytes) -> list[dict[str, bytes]]:
    """The one row of an answer."""
    empty = b"\0" * (len(keys) - 1)
    columns = {"user_id": empty, "token": empty, "locale": empty}
    return [{"seq_id": np.array(keys, ">i8").tobytes(), **columns, **texts}]


def test_what_is_empty_keeps_its_place() -> None:
    read = devices_of(answer(keys=[-1, 2, 2**63 - 1], user_id=b"\0\0u", token="\0é\0".encode(), tz=b"+0100\0\0"))
    assert rows_of(read) == [(-1, "", "", "", "+0100"), (2, "", "é", "", ""), (2**63 - 1, "u", "", "", "")]


def test_nobody_has_no_column() -> None:
    read = devices_of([dict.fromkeys(("seq_id", "user_id", "token", "locale", "tz"))])
    assert len(read) == len(read.users) == len(read.tokens) == len(read.locales) == 0


@pytest.mark.parametrize("column", ["user_id", "token", "locale", "tz"])
def test_a_text_that_is_not_utf_8_is_invalid(column: str) -> None:
    with pytest.raises(Invalid, match=f'column "{column}"') as raised:
        devices_of(answer(keys=[1, 2], **{column: b"fine\0\xff"}))
    assert raised.value.field == column


@pytest.mark.native
@pytest.mark.parametrize("key_type", ["smallint", "integer", "bigint"])
async def test_a_part_of_a_range_is_read_in_the_order_of_the_index(
    owner: "asyncpg.Connection[asyncpg.Record]", key_type: str
) -> None:
    """A range that has grown is not sorted for each of its parts."""
    await owner.execute(f"ALTER TABLE game_apns ALTER seq_id TYPE {key_type}")
    await owner.execute("INSERT INTO game_apns (seq_id) SELECT generate_series(1, 20000); ANALYZE game_apns")
    known = read_table("game_apns", await owner.fetch(DESCRIBE, "game_apns"))
    plan = await owner.fetch(f"EXPLAIN {statements.read(known, [])}", 0, 20_000, 100)
    steps = "\n".join(row[0] for row in plan)
    assert "Index Scan" in steps
    assert "Sort" not in steps


async def test_locales_and_regions_are_compared_in_one_form(
    audience: Audience, owner: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    table = "game_apns"
    rows = [(1, "en", "US"), (2, "pt-BR", "br"), (3, "PT_br", " BR"), (4, "de", None), (5, None, "BR")]
    await owner.executemany(f"INSERT INTO {table} (seq_id, locale, region) VALUES ($1, $2, $3)", rows)

    async def kept(**filters: str) -> list[int]:
        await audience.check(table, filters)
        return [*(await audience.read(table, filters, KeyRange(0, 9))).keys]

    assert await kept(NOTlocale="pt-BR") == [1, 4]
    assert await kept(locale="pt_br") == [2, 3]
    assert await kept(locale=" PT-BR , De") == [2, 3, 4]
    assert await kept(region="br", NOTlocale="x") == [2, 3]
    assert await kept(NOTregion="us,BR") == []
