"""Counts are those of an independent oracle, of all that was looked at and of nothing else, and end when they must."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.audience.rules.audiences import conditions
from shared.core.errors import Invalid, Unavailable
from shared.drivers.postgres import Audience, statements
from shared.drivers.postgres.asking import Tally, scan
from tests.drivers.postgres.conftest import TIMEOUT_SECONDS
from tests.drivers.postgres.gate import Gate
from tests.drivers.postgres.test_cutting import COLUMNS, TABLE, filters, kept, refill, rows, texts
from tests.tiers import and_rarely

pytestmark = pytest.mark.native

LONG = 60.0
LARGE = 300_000


@pytest.fixture
async def large(push_database: str, owner: Any) -> AsyncIterator[Audience]:
    """An audience of 300,000 devices: three of each user, a third without a token, one in seven not to be sent to."""
    await owner.execute(
        f"INSERT INTO {TABLE} (user_id, token, locale, region, tz, seq_id)"
        " SELECT 'u' || i / 3, CASE WHEN i % 3 > 0 THEN 't' || i END, (ARRAY['en', 'PT', NULL])[1 + i % 3],"
        "   CASE WHEN i % 7 = 0 THEN 'no' ELSE 'yes' END, (ARRAY['+0000', '-0000', '+0545', NULL])[1 + i % 4], 10 * i"
        f" FROM generate_series(0, {LARGE - 1}) i"
    )
    opened = Audience.open(push_database, pool_size=2, statement_timeout_seconds=30, scan_rows=50_000)
    yield opened
    await opened.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, filters)
async def test_a_count_to_the_end_is_that_of_the_oracle(
    audience: Audience, owner: Any, table: list[tuple[Any, ...]], wanted: dict[str, str]
) -> None:
    await refill(owner, table)
    named = [dict(zip(COLUMNS, row, strict=True)) for row in table]
    devices = [row for row in named if kept(row, wanted) and row["seq_id"] <= max(0, *_keys(named))]

    counted = await audience.count(TABLE, wanted, seconds=LONG)

    assert counted.exact
    assert counted.indexed
    assert counted.devices == len(devices) == counted.estimate(counted.devices)
    assert counted.users == len({row["user_id"] for row in devices} - {None})
    assert counted.without_token == sum(not row["token"] for row in devices)
    assert counted.zones == Counter(row["tz"] for row in devices)
    assert counted.locales == Counter(row["locale"] for row in devices)
    assert counted.longest_user == max((len((row["user_id"] or "").encode()) for row in devices), default=0)
    assert counted.longest_token == max((len((row["token"] or "").encode()) for row in devices), default=0)


def _keys(table: list[dict[str, Any]]) -> list[int]:
    return [0, *(row["seq_id"] for row in table if row["seq_id"] is not None)]


@pytest.mark.slow
async def test_a_large_audience_is_counted_to_its_end(large: Audience) -> None:
    counted = await large.count(TABLE, {"region": "yes"}, seconds=LONG)
    sent_to = [i for i in range(LARGE) if i % 7]
    assert (counted.exact, counted.scanned, counted.total) == (True, LARGE, LARGE)
    assert counted.devices == len(sent_to)
    assert counted.users == len({i // 3 for i in sent_to})
    assert counted.zones == Counter(("+0000", "-0000", "+0545", None)[i % 4] for i in sent_to)
    assert counted.locales == Counter(("en", "PT", None)[i % 3] for i in sent_to)


@pytest.mark.alone
async def test_a_count_ends_when_its_time_is_up(push_database: str, large: Audience) -> None:
    """3,000 statements do not fit in half a second."""
    hurried = Audience.open(push_database, pool_size=1, statement_timeout_seconds=30, scan_rows=100)
    try:
        await hurried.ping()
        began = time.monotonic()
        counted = await hurried.count(TABLE, {}, seconds=0.5)
        assert time.monotonic() - began < 50
        assert not counted.exact
        assert counted.devices == counted.scanned < LARGE
        await hurried.ping()
    finally:
        await hurried.close()


@pytest.mark.parametrize("analysed", and_rarely(True, rarely=(False,)))
async def test_what_was_not_looked_at_is_taken_to_be_like_the_rest(large: Audience, owner: Any, analysed: bool) -> None:
    """The time is up after three statements: what they found is told, and an estimate of the whole."""
    if analysed:
        await owner.execute(f"ANALYZE {TABLE}")
    wanted, answered, tally = {"region": "yes"}, 0, Tally()

    async def ask(*bounds: int) -> Any:
        nonlocal answered
        answered += 1
        if answered > 3:
            raise TimeoutError
        return await partial(large._tables.ask, TABLE, conditions(wanted), statements.tally)(*bounds)

    highest = await large.highest(TABLE)
    deadline = asyncio.get_running_loop().time() + LONG
    with pytest.raises(TimeoutError):
        await scan(ask, tally, upto=highest, scan_rows=50_000, deadline=deadline)
    catalogue = await owner.fetchval(statements.ROWS, TABLE)
    counted = tally.result(highest=highest, rows=catalogue, exact=False, indexed=True)

    seen = 3_125 + 12_500 + 50_000
    assert (catalogue > 0) is analysed
    assert counted.scanned == seen
    assert counted.devices == sum(i % 7 > 0 for i in range(seen))
    assert counted.estimate(counted.devices) == pytest.approx(LARGE * 6 / 7, rel=0.01)
    assert counted.estimate(counted.users) == pytest.approx(LARGE / 3, rel=0.01)


async def test_a_table_that_nobody_may_read_now_is_counted_as_unknown(audience: Audience, owner: Any) -> None:
    async with owner.transaction():
        await owner.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        counted = await audience.count(TABLE, {}, seconds=0.3)
    assert (counted.exact, counted.scanned, counted.estimate(0)) == (False, 0, None)
    assert (await audience.count(TABLE, {}, seconds=LONG)).exact


async def test_a_missing_index_is_told(audience: Audience, owner: Any) -> None:
    await owner.execute("DROP INDEX game_apns_seq_id_idx")
    assert not (await audience.count(TABLE, {}, seconds=LONG)).indexed


async def test_a_view_is_not_told_to_lack_an_index(audience: Audience, owner: Any) -> None:
    await owner.execute(f"CREATE VIEW app_view AS SELECT * FROM {TABLE}")
    assert (await audience.count("app_view", {}, seconds=LONG)).indexed
    assert (await audience.count_users("app_view", ["ana"])).indexed


async def test_odd_texts_are_told_apart_up_to_a_bound(audience: Audience, owner: Any) -> None:
    await owner.execute(
        f"INSERT INTO {TABLE} (user_id, locale, tz, seq_id)"
        f" SELECT 'u', repeat('é', 200), 'z' || i % 1500, i FROM generate_series(1, 3000) i"
    )
    counted = await audience.count(TABLE, {}, seconds=LONG)
    assert counted.devices == 3_000
    assert counted.locales == {"é" * 64: 3_000}
    assert len(counted.zones) <= 1_000
    assert counted.users == 1


async def test_other_types_of_columns_are_read_as_text(audience: Audience, owner: Any) -> None:
    await owner.execute("""
        CREATE TABLE app_gcm (user_id bigint, token uuid, locale varchar(5), tz character(5), seq_id smallint);
        INSERT INTO app_gcm VALUES (42, '6e1d6e0c-0000-4000-8000-000000000001', 'en', '+01', 1)""")
    counted = await audience.count("app_gcm", {"user_id": "042"}, seconds=LONG)
    assert (counted.devices, counted.users, counted.longest_user, counted.longest_token) == (1, 1, 2, 36)
    assert counted.zones == {"+01": 1}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows, st.sets(texts.filter(bool)))
async def test_what_users_have_is_what_the_oracle_finds(
    audience: Audience, owner: Any, table: list[tuple[Any, ...]], users: set[str]
) -> None:
    await refill(owner, table)
    named = [dict(zip(COLUMNS, row, strict=True)) for row in table]
    devices = [row for row in named if row["user_id"] in users and row["seq_id"] is not None]
    known = {row["user_id"] for row in devices}

    counted = await audience.count_users(TABLE, [*users, ""])

    assert (counted.devices, counted.users, counted.unknown) == (len(devices), len(known), len(users - known) + 1)
    assert counted.without_token == sum(not row["token"] for row in devices)
    assert counted.zones == Counter(row["tz"] for row in devices)
    assert counted.locales == Counter(row["locale"] for row in devices)
    assert counted.longest_user == max((len(user.encode()) for user in known), default=0)
    assert not counted.indexed


async def test_an_index_on_users_is_told_and_a_user_that_the_column_cannot_hold_is_unknown(
    audience: Audience, owner: Any
) -> None:
    await owner.execute("""
        CREATE TABLE app_gcm (user_id bigint, token text, locale text, tz text, seq_id bigint);
        CREATE INDEX ON app_gcm (user_id); INSERT INTO app_gcm VALUES (7, 't', 'en', '+0100', 1)""")
    counted = await audience.count_users("app_gcm", ["7", "07", "8"])
    assert (counted.devices, counted.users, counted.unknown, counted.indexed) == (1, 1, 2, True)
    counted = await audience.count_users("app_gcm", ["7", "ann", "42.0", str(2**63)])
    assert (counted.devices, counted.users, counted.unknown) == (1, 1, 3)


async def test_bad_input_is_invalid_and_a_server_that_is_away_unavailable(
    audience: Audience, push_database: str, owner: Any
) -> None:
    with pytest.raises(Invalid, match="there is no table"):
        await audience.count("other_apns", {}, seconds=LONG)
    with pytest.raises(Invalid) as caught:
        await audience.count(TABLE, {"nothere": "x"}, seconds=LONG)
    assert caught.value.field == "filters.nothere"
    async with Gate(push_database) as gate:
        away = Audience.open(gate.url, pool_size=1, statement_timeout_seconds=TIMEOUT_SECONDS)
        gate.close()
        with pytest.raises(Unavailable):
            await away.count(TABLE, {}, seconds=LONG)
        await away.close()
