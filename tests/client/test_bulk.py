"""Many schedules at once, in chunks, against the real API."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from carillon import AsyncCarillon, Invalid, RabbitCallback, Schedule, Unauthorized, schedules
from carillon.async_runtime import AsyncRuntime
from carillon.files import each
from tests.client.both import connect
from tests.client.made import ahead, fresh_key, schedule

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_one_bad_item_among_many_is_told_in_its_place(
    client: AsyncCarillon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "ITEMS", 3)
    keys = [fresh_key() for _ in range(8)]

    async def wanted() -> AsyncIterator[Schedule]:
        for n, key in enumerate(keys):
            yield schedule(key, *ahead(-1 if n == 4 else 1))

    results = [result async for result in client.schedules.bulk(wanted())]
    assert [(result.index, result.key) for result in results] == list(enumerate(keys))
    assert [result.status for result in results] == [201] * 4 + [422] + [201] * 3
    assert results[4].error is not None
    assert (results[4].error.field, results[4].created, results[5].created) == ("schedules", False, True)
    assert len([each async for each in client.schedules.list(prefix="k-") if each.key in keys]) == 7


async def test_what_cannot_be_sent_is_told_in_its_place(client: AsyncCarillon) -> None:
    keys = [fresh_key() for _ in range(5)]
    payloads = ["good", object(), "good", "x" * (3 * 2**20), "good"]
    wanted = [
        schedule(key, callback=RabbitCallback(queue="q", payload=payload))
        for key, payload in zip(keys, payloads, strict=True)
    ]
    results = [result async for result in client.schedules.bulk(wanted)]
    assert [(result.index, result.key) for result in results] == list(enumerate(keys))
    assert [result.status for result in results] == [201, 422, 201, 413, 201]


async def test_a_key_of_the_caller_makes_bulk_repeatable(
    client: AsyncCarillon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "ITEMS", 2)
    wanted, mine = [schedule(fresh_key()) for _ in range(5)], fresh_key()
    first = [result.status async for result in client.schedules.bulk(wanted, idempotency_key=mine)]
    assert first == [201] * 5
    again = [result.status async for result in client.schedules.bulk(wanted, idempotency_key=mine)]
    assert again == [200] * 5
    with pytest.raises(Invalid):
        _ = [result async for result in client.schedules.bulk(reversed(wanted), idempotency_key=mine)]


async def test_who_may_not_ask_hears_so_while_much_is_sent(port: int) -> None:
    large = schedule("k", callback=RabbitCallback(queue="q", payload="x" * 10**6))
    async with connect(f"http://127.0.0.1:{port}", token="nobodys", attempts=1) as stranger:
        with pytest.raises(Unauthorized):
            _ = [result async for result in stranger.schedules.bulk([large] * 8)]


async def test_chunks_are_bounded_in_every_way() -> None:
    async def sizes(*wanted: Schedule) -> list[int]:
        return [len(chunk) async for chunk in schedules.chunks(each(wanted, AsyncRuntime())) if isinstance(chunk, list)]

    small = schedule("k")
    assert await sizes(*[small] * 5_001) == [5_000, 1]
    instants = tuple(datetime(2100, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(10_000))
    assert await sizes(*[schedule("k", *instants)] * 6) == [5, 1]
    large = schedule("k", callback=RabbitCallback(queue="q", payload="x" * 2**20))
    assert await sizes(*[large] * 9) == [7, 2]
    assert await sizes() == []
