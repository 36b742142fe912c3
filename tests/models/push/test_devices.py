"""The model's devices answer as the push database does."""

from random import Random

import asyncpg
import pytest

from shared.audience.rules.audiences import BEGINNING, KeyRange
from shared.drivers.postgres import Audience
from tests.drivers.postgres.rows import rows_of
from tests.models.push.devices import PushTable

pytestmark = pytest.mark.native

TABLE = "shop_apns"


async def fill(url: str, keys: list[int]) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        f"CREATE TABLE {TABLE} (user_id text, token text, locale text, region text, tz text, seq_id bigint)"
    )
    rows = [(f"u{key}", str(key), "en", key) for key in keys]
    await connection.executemany(f"INSERT INTO {TABLE} (user_id, token, locale, seq_id) VALUES ($1, $2, $3, $4)", rows)
    await connection.close()


async def test_they_are_cut_and_read_alike(push_database: str) -> None:
    keys = Random(7).sample(range(1, 200), 40)
    await fill(push_database, keys)
    audience = Audience.open(push_database, pool_size=1, statement_timeout_seconds=5)
    devices = PushTable(keys)
    assert await devices.highest(TABLE) == await audience.highest(TABLE)
    for after, upto, size, batches in ((BEGINNING, 200, 2, 4), (0, 100, 3, 1), (57, 150, 5, 20), (200, 200, 2, 2)):
        cut = await audience.cut(TABLE, {}, after=after, upto=upto, size=size, batches=batches)
        assert await devices.cut(TABLE, {}, after=after, upto=upto, size=size, batches=batches) == cut
        for limit in (1, 7, 100):
            found = await audience.read(TABLE, {}, KeyRange(after, upto), limit=limit)
            read = await devices.read(TABLE, {}, KeyRange(after, upto), limit=limit)
            assert rows_of(read) == rows_of(found)
    await audience.close()
