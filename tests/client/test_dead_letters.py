"""Every method for dead letters, against the real API."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from carillon import AsyncCarillon, Conflict, NotFound
from shared.clock.rules.occurrences import OccurrenceKind
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from tests.client.both import connect
from tests.client.made import NAMESPACE, fresh_key, pending, schedule
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def buried(house: House, key: str, count: int, namespace: str = NAMESPACE) -> list[str]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    letters = [
        DeadLetter(
            id=f"{key}-{n}", death=f"{key}-{n}",
            namespace=namespace, key=key, schedule_id=schedule_id(namespace, key), generation="g",
            due=at + timedelta(minutes=n), died_at=at + timedelta(hours=1), attempts=10, error="404 Not Found",
        )
        for n in range(count)
    ]  # fmt: skip
    await house.store.dead_letters.add(letters)
    return [letter.id for letter in letters]


async def test_dead_letters_are_listed_retried_and_discarded(client: AsyncCarillon, house: House) -> None:
    key = fresh_key()
    await client.schedules.create(schedule(key))
    ids = await buried(house, key, 5)
    letters = [each async for each in client.dead_letters.list(key=key, page_size=2)]
    assert [letter.id for letter in letters] == ids[::-1]
    assert (letters[0].key, letters[0].attempts, letters[0].error) == (key, 10, "404 Not Found")
    assert letters[0].due - letters[1].due == timedelta(minutes=1)
    await client.dead_letters.retry(ids[0])
    await client.dead_letters.discard(ids[1])
    for call in (client.dead_letters.retry, client.dead_letters.discard):
        with pytest.raises(NotFound):
            await call(ids[0])
    assert await client.dead_letters.retry_all(key=key) == 3
    assert [each async for each in client.dead_letters.list(key=key)] == []
    assert len([each for each in await pending(house, key) if each.kind is OccurrenceKind.ASKED]) == 4


async def test_a_payload_beyond_a_float_is_read_exactly(client: AsyncCarillon, house: House) -> None:
    key, deep = fresh_key(), "[" * 60 + "]" * 60
    payload = f'{{"n":[1E400,-1e309,1e-400,{"9" * 30}],"deep":{deep},"x":"\\u0000"}}'
    body = b'{"key":"%s","every":60,"callback":{"type":"rabbitmq","data":{"queue":"q","payload":%s}}}' % (
        key.encode(), payload.encode(),
    )  # fmt: skip
    assert (await house.admin.post("/schedules", body)).status == 201
    [id] = await buried(house, key, 1)
    callback = (await client.dead_letters.get(id)).callback
    numbers = [Decimal("1E400"), Decimal("-1e309"), Decimal("1e-400"), int("9" * 30)]
    assert callback is not None
    assert callback.payload == {"n": numbers, "deep": json.loads(deep), "x": "\0"}


async def test_a_dead_letter_without_a_schedule_can_only_be_discarded(client: AsyncCarillon, house: House) -> None:
    [id] = await buried(house, fresh_key(), 1)
    with pytest.raises(Conflict):
        await client.dead_letters.retry(id)
    await client.dead_letters.discard(id)


async def test_many_are_retried_by_a_bulk_action_of_the_server(client: AsyncCarillon, house: House) -> None:
    key = fresh_key()
    await client.schedules.create(schedule(key))
    await buried(house, key, 501)
    assert await client.dead_letters.retry_all(key=key, reason="the target is back") == 501
    [action] = [each async for each in client.bulk_actions.list() if each.filter.key == key]
    assert (action.act, action.matched, action.reason) == ("dead-letter.retry", 501, "the target is back")


async def test_all_of_the_callers_dead_letters_are_retried(house: House, port: int) -> None:
    issued = (await house.admin.post("/tokens", {"name": "dead"})).json
    key = fresh_key()
    async with connect(f"http://127.0.0.1:{port}", token=issued["token"]) as other:
        await other.schedules.create(schedule(key))
        stored = await house.store.schedules.page(f"token:{issued['id']}", state=None, limit=10)
        assert [each.key for each in stored] == [key]
        await buried(house, key, 3, stored[0].namespace)
        assert await other.dead_letters.retry_all() == 3


async def test_an_admin_sees_and_moves_another_namespaces_dead_letters(client: AsyncCarillon, house: House) -> None:
    key, namespace = fresh_key(), f"user:{fresh_key()}@example.com"
    first, second = await buried(house, key, 2, namespace)
    assert [each.id async for each in client.dead_letters.list(namespace=namespace)] == [second, first]
    with pytest.raises(NotFound):
        await client.dead_letters.discard(first)
    await client.dead_letters.discard(first, namespace=namespace)
    with pytest.raises(Conflict):
        await client.dead_letters.retry(second, namespace=namespace)
    assert await client.dead_letters.retry_all(namespace=namespace) == 0
