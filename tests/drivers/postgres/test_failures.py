"""A server that goes away is `Unavailable` and then works again; a table that changes is looked up again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from shared.audience.rules.audiences import BEGINNING, KeyRange
from shared.audience.rules.devices import Cut
from shared.core.errors import Invalid, Unavailable
from shared.drivers.postgres import Audience
from tests.drivers.postgres.gate import Gate
from tests.waiting import until

TABLE = "game_apns"
WAKING_SECONDS = 50.0


@pytest.fixture
async def gate(push_database: str, owner: Any) -> AsyncIterator[Gate]:
    await owner.execute(
        f"INSERT INTO {TABLE} (user_id, locale, seq_id, level) SELECT 'u', 'en', i, 7 FROM generate_series(1, 3) i"
    )
    async with Gate(push_database) as opened:
        yield opened


@pytest.fixture
async def behind(gate: Gate) -> AsyncIterator[Audience]:
    """An audience whose connections pass the gate."""
    opened = Audience.open(gate.url, pool_size=2, statement_timeout_seconds=30)
    yield opened
    await opened.close()


@pytest.fixture
async def hurried(gate: Gate) -> AsyncIterator[Audience]:
    """The same, for statements that never end."""
    opened = Audience.open(gate.url, pool_size=2, statement_timeout_seconds=2)
    yield opened
    await opened.close()


def operations(audience: Audience) -> list[Callable[[], Awaitable[object]]]:
    return [
        lambda: audience.check(TABLE, {"locale": "en"}),
        lambda: audience.highest(TABLE),
        lambda: audience.cut(TABLE, {"locale": "en"}, after=BEGINNING, upto=9, size=5, batches=2),
        lambda: audience.read(TABLE, {"locale": "en"}, KeyRange(0, 9)),
        audience.ping,
    ]


async def works(audience: Audience) -> None:
    """Everything answers again, after at most one failure for each connection that was lost."""

    async def answers() -> bool:
        try:
            await audience.ping()
        except Unavailable:
            return False
        return True

    await until(answers, "an answer of the server")
    for operation in operations(audience):
        await operation()
    assert await audience.cut(TABLE, {}, after=BEGINNING, upto=9, size=2, batches=2) == [Cut(2, 2), Cut(3, 1)]


async def test_a_server_that_is_down_at_the_start_is_used_when_it_is_up(gate: Gate, behind: Audience) -> None:
    gate.close()
    for operation in operations(behind):
        with pytest.raises(Unavailable):
            await operation()
    await gate.open()
    await works(behind)


async def test_a_server_that_stops_is_unavailable_until_it_is_back(gate: Gate, behind: Audience) -> None:
    await works(behind)
    gate.close()
    for operation in operations(behind):
        with pytest.raises(Unavailable):
            await operation()
    await gate.open()
    await works(behind)


async def test_a_cut_connection_is_replaced(gate: Gate, behind: Audience) -> None:
    await works(behind)
    gate.cut()
    await works(behind)


async def test_a_backend_that_is_ended_is_replaced(owner: Any, behind: Audience) -> None:
    await works(behind)
    ended = await owner.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE application_name = 'carillon' AND datname = current_database()"
    )
    assert ended > 0
    await works(behind)


@pytest.mark.parametrize("strike", [Gate.cut, Gate.close])
async def test_a_connection_lost_in_mid_statement_is_unavailable(
    gate: Gate, behind: Audience, owner: Any, strike: Callable[[Gate], None]
) -> None:
    await works(behind)
    async with owner.transaction():
        await owner.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        reading = asyncio.create_task(behind.read(TABLE, {}, KeyRange(0, 9)))
        await blocked(owner)
        strike(gate)
        with pytest.raises(Unavailable):
            await reading
    gate.close()
    await gate.open()
    await works(behind)


async def blocked(owner: Any) -> None:
    """Return when a statement of the audience waits for the owner's lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::regclass"
    await until(lambda: owner.fetchval(waiting, TABLE), "a statement that waits for the lock")


async def test_a_statement_that_takes_too_long_is_unavailable(owner: Any, hurried: Audience) -> None:
    await works(hurried)
    async with owner.transaction():
        await owner.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="timeout"):
            await hurried.read(TABLE, {}, KeyRange(0, 9))
    await works(hurried)


@pytest.mark.slow
async def test_a_frozen_server_is_unavailable_within_the_time_out(gate: Gate, hurried: Audience) -> None:
    await works(hurried)
    gate.freeze()
    async with asyncio.timeout(WAKING_SECONDS):
        with pytest.raises(Unavailable):
            await hurried.ping()
    gate.cut()
    gate.thaw()
    await works(hurried)


async def test_a_reader_that_is_cancelled_leaves_a_pool_that_works(owner: Any, behind: Audience) -> None:
    await works(behind)
    async with owner.transaction():
        await owner.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        readers = [asyncio.create_task(behind.read(TABLE, {}, KeyRange(0, 9))) for _ in range(2)]
        await blocked(owner)
        for reader in readers:
            reader.cancel()
        ended = await asyncio.gather(*readers, return_exceptions=True)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 2
    await works(behind)


async def test_a_reader_that_is_cancelled_before_a_frozen_server_is_cancelled(
    gate: Gate, hurried: Audience, owner: Any
) -> None:
    await works(hurried)
    async with owner.transaction():
        await owner.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
        reader = asyncio.create_task(hurried.read(TABLE, {}, KeyRange(0, 9)))
        await blocked(owner)
        gate.freeze()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    gate.cut()
    gate.thaw()
    await works(hurried)


async def test_a_missing_database_and_a_user_without_rights_are_unavailable(push_database: str, owner: Any) -> None:
    role = "nobody_" + push_database.rpartition("/")[2]
    await owner.execute(f"CREATE ROLE {role} LOGIN")
    base, _, name = push_database.rpartition("/")
    scheme, _, place = base.partition("://")
    try:
        for url in (f"{base}/nowhere", f"{scheme}://{role}@{place.rpartition('@')[2]}/{name}"):
            audience = Audience.open(url, pool_size=1, statement_timeout_seconds=1)
            with pytest.raises(Unavailable):
                await audience.highest(TABLE)
            with pytest.raises(Unavailable):
                await audience.check(TABLE, {})
            await audience.close()
    finally:
        await owner.execute(f"DROP ROLE {role}")


async def test_a_table_that_is_dropped_in_mid_job_is_invalid_and_used_again_when_it_is_back(
    owner: Any, behind: Audience
) -> None:
    await works(behind)
    await owner.execute(f"ALTER TABLE {TABLE} RENAME TO elsewhere")
    for operation in operations(behind)[:-1]:
        with pytest.raises(Invalid, match="there is no table") as caught:
            await operation()
        assert caught.value.field == "app"
    await owner.execute(f"ALTER TABLE elsewhere RENAME TO {TABLE}")
    await works(behind)


async def test_a_filters_column_that_is_dropped_in_mid_job_is_invalid(owner: Any, behind: Audience) -> None:
    assert len(await behind.read(TABLE, {"level": "7"}, KeyRange(0, 9))) == 3
    await owner.execute(f"ALTER TABLE {TABLE} DROP COLUMN level")
    with pytest.raises(Invalid, match='no column "level"') as caught:
        await behind.read(TABLE, {"level": "7"}, KeyRange(0, 9))
    assert caught.value.field == "filters.level"


async def test_a_column_that_is_altered_or_added_in_mid_job_is_read_as_it_is_now(owner: Any, behind: Audience) -> None:
    assert len(await behind.read(TABLE, {"level": "07"}, KeyRange(0, 9))) == 3
    await owner.execute(f"ALTER TABLE {TABLE} ALTER level TYPE text, ADD COLUMN fresh text DEFAULT 'yes'")
    assert len(await behind.read(TABLE, {"level": "07"}, KeyRange(0, 9))) == 0
    assert len(await behind.read(TABLE, {"level": "7", "fresh": "yes"}, KeyRange(0, 9))) == 3


async def test_connections_cannot_write(audience: Audience) -> None:
    with pytest.raises(Unavailable, match="read-only"):
        await audience.connections.fetch(f"DELETE FROM {TABLE}")
