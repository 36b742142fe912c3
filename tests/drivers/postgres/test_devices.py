"""The table that `carillon seed` fills is the table of the documentation."""

import re

import asyncpg
import pytest

from shared.core.errors import Conflict
from shared.drivers.postgres.devices import top_up
from tests.deploy.manifests import ROOT

pytestmark = pytest.mark.native

COLUMNS = """
SELECT column_name, data_type, is_nullable, is_identity, identity_generation FROM information_schema.columns
WHERE table_name = $1 ORDER BY column_name"""


async def test_a_seeded_table_is_as_the_page_says_and_takes_a_row_without_a_key(push_database: str) -> None:
    documented = re.findall(r"^```sql\n(.*?)^```", (ROOT / "docs/push-table.md").read_text(), re.DOTALL | re.MULTILINE)
    await top_up(push_database, "demo_apns", 2)
    assert await top_up(push_database, "demo_apns", 3) == 3
    connection = await asyncpg.connect(push_database)
    try:
        await connection.execute(documented[0])
        assert await connection.fetch(COLUMNS, "demo_apns") == await connection.fetch(COLUMNS, "game_apns")
        for table in ("game_apns", "demo_apns"):
            insert = f"INSERT INTO {table} (user_id, token) VALUES ('ana', 'abc') RETURNING seq_id"
            assert await connection.fetchval(insert) == {"game_apns": 1, "demo_apns": 4}[table]
    finally:
        await connection.close()
    with pytest.raises(Conflict, match="not made up here"):
        await top_up(push_database, "demo_apns", 9)
