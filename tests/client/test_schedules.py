"""Every method for single schedules, against the real API."""

import secrets
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from msgspec.structs import replace

from carillon import (
    AsyncCarillon,
    Conflict,
    FireWithin,
    Forbidden,
    HttpCallback,
    Invalid,
    JobCallback,
    KafkaCallback,
    NotFound,
    OutcomeResult,
    PushJob,
    RabbitCallback,
    Retry,
    Schedule,
    ScheduleState,
    Unauthorized,
    job_callback,
)
from shared.clock.rules.occurrences import OccurrenceKind
from shared.clock.rules.outcomes import Outcome
from shared.clock.rules.outcomes import OutcomeResult as StoredResult
from tests.client.both import connect
from tests.client.made import QUEUE, ahead, fresh_key, pending, schedule
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]


async def test_a_schedule_is_made_and_read_with_all_that_it_was_given(client: AsyncCarillon) -> None:
    key = fresh_key()
    [past, *left] = ahead(-1, 1, 2)
    wanted = schedule(
        key, *left, past, misfire=FireWithin(60), retry=Retry(attempts=3), labels={"team": "a"}, window_seconds=60,
    )  # fmt: skip
    made = await client.schedules.create(wanted)
    assert (made.key, made.created, made.state, made.skipped) == (key, True, ScheduleState.ACTIVE, (past,))
    assert made.instants == (past, *left)
    delay = made.next[0] - left[0]
    assert timedelta() <= delay < timedelta(seconds=60)
    assert made.next == tuple(instant + delay for instant in left)
    assert (made.misfire, made.retry.attempts, made.labels, made.window_seconds) == (
        FireWithin(60), 3, {"team": "a"}, 60,
    )  # fmt: skip
    assert made.callback == QUEUE
    shown = await client.schedules.get(key)
    assert (shown.next, shown.instants, shown.created_at) == (made.next, made.instants, made.created_at)
    assert not (await client.schedules.create(wanted)).created


async def test_every_kind_of_callback_comes_back_as_it_was_given(client: AsyncCarillon) -> None:
    for callback in (
        RabbitCallback(exchange="orders", routing_key="new", payload=None, headers={"a": "b"}),
        KafkaCallback(topic="orders", key="42", payload="text", headers={"a": "b"}),
        HttpCallback(url="https://example.com/", method="PUT", headers={"X-A": "b"}, payload=[1.5]),
        HttpCallback(url="https://example.com/", headers={}),
    ):
        made = await client.schedules.create(schedule(fresh_key(), callback=callback))
        assert made.callback == callback


async def test_a_number_that_no_float_holds_spoils_no_list(client: AsyncCarillon, house: House) -> None:
    key = fresh_key()
    body = b'{"key":"%s","every":60,"callback":{"type":"rabbitmq","data":{"queue":"q","payload":1e999}}}' % key.encode()
    assert (await house.admin.post("/schedules", body)).status == 201
    [found] = [each async for each in client.schedules.list(prefix=key)]
    assert found.callback.payload == Decimal("1e999")


async def test_a_payload_that_was_read_and_put_again_has_the_same_numbers(client: AsyncCarillon, house: House) -> None:
    key = fresh_key()
    payload = b"[1.1,1E+400,0.1234567890123456789,123456789012345678901234567890,1E-400]"
    body = b'{"key":"%s","every":60,"callback":{"type":"rabbitmq","data":{"queue":"q","payload":%s}}}' % (
        key.encode(), payload,
    )  # fmt: skip
    assert (await house.admin.post("/schedules", body)).status == 201
    found = await client.schedules.get(key)
    await client.schedules.put(key, Schedule(every_seconds=90, callback=found.callback))
    assert payload in (await house.admin.get(f"/schedules/{key}")).body


async def test_recurrences_have_their_bounds(client: AsyncCarillon) -> None:
    paris = timezone(timedelta(hours=2))
    wanted = Schedule(
        cron="30 9 * * *", timezone="Europe/Paris", starts_at=datetime(2100, 7, 1, tzinfo=paris),
        ends_at=datetime(2100, 7, 3, tzinfo=UTC), callback=QUEUE,
    )  # fmt: skip
    days = (datetime(2100, 7, 1, 7, 30, tzinfo=UTC), datetime(2100, 7, 2, 7, 30, tzinfo=UTC))
    assert await client.schedules.preview(wanted) == days
    made = await client.schedules.put(fresh_key(), wanted)
    assert made.next == days
    assert (made.cron, made.timezone, made.starts_at) == ("30 9 * * *", "Europe/Paris", wanted.starts_at)
    every = await client.schedules.put(fresh_key(), Schedule(every_seconds=3600, max_occurrences=3, callback=QUEUE))
    assert (every.every_seconds, every.max_occurrences, len(every.next)) == (3600, 3, 3)


async def test_a_schedule_starts_the_jobs_of_the_client(client: AsyncCarillon, house: House) -> None:
    app_id = await house.app_with_template()
    push = PushJob(service="apns", template="like", filters={"locale": "en"}, context={"user": "Ana"})
    starts = job_callback(app_id, push, overlap="allow", expires_after_seconds=60)
    made = await client.schedules.put(fresh_key(), Schedule(every_seconds=3600, callback=starts))
    assert isinstance(made.callback, JobCallback)
    assert (made.callback.app_id, made.callback.template, made.callback.overlap) == (app_id, "like", "allow")
    assert made.callback.payload["filters"] == {"locale": "en"}
    late = Schedule(every_seconds=3600, callback=job_callback(app_id, replace(push, starts_at=ahead(1)[0])))
    with pytest.raises(Invalid, match="startsAt"):
        await client.schedules.put(fresh_key(), late)


async def test_schedules_move_with_their_anchor(client: AsyncCarillon) -> None:
    key, (anchor, later) = fresh_key(), ahead(1, 2)
    offsets = (timedelta(minutes=-30), "+3h")
    made = await client.schedules.create(
        Schedule(key=key, anchor=anchor, offsets=offsets, callback=QUEUE, labels={"day": key})
    )
    assert (made.anchor, tuple(made.offsets or ()), made.next) == (
        anchor, ("-30m", "+3h"), (anchor - timedelta(minutes=30), anchor + timedelta(hours=3)),
    )  # fmt: skip
    assert (await client.schedules.move(key, later)).next[0] == later - timedelta(minutes=30)
    moved = await client.schedules.move_all({"day": key}, timedelta(days=1))
    assert (moved.moved, moved.unmoved) == (1, 0)
    assert (await client.schedules.get(key)).anchor == later + timedelta(days=1)


async def test_put_replaces_what_is_pending(client: AsyncCarillon) -> None:
    key, moved = fresh_key(), ahead(5)
    assert (await client.schedules.put(key, schedule())).created
    replaced = await client.schedules.put(key, schedule(key, *moved))
    assert (replaced.created, replaced.next) == (False, moved)
    assert (await client.schedules.get(key)).next == moved


async def test_outcomes_are_told(client: AsyncCarillon, house: House) -> None:
    key, at = fresh_key(), datetime(2026, 1, 1, tzinfo=UTC)
    await client.schedules.create(schedule(key))
    owner = (await pending(house, key))[0].owner
    await house.store.outcomes.add([
        Outcome(
            id=key, owner=owner, due=at, at=at + timedelta(milliseconds=7), late_ms=0, attempt=2,
            result=StoredResult.FAILED, error="503",
        )
    ])  # fmt: skip
    [outcome] = (await client.schedules.get(key)).outcomes
    assert (outcome.due, outcome.late_ms, outcome.attempt, outcome.result, outcome.error) == (
        at, 7, 2, OutcomeResult.FAILED, "503",
    )  # fmt: skip


async def test_a_list_goes_over_all_pages_and_is_filtered(client: AsyncCarillon) -> None:
    prefix = fresh_key()
    keys = [f"{prefix}-{n}" for n in range(7)]
    for key in keys:
        await client.schedules.create(schedule(key))
    await client.schedules.pause(keys[3])
    assert [each.key async for each in client.schedules.list(prefix=prefix, page_size=2)] == keys
    paused = [each async for each in client.schedules.list(prefix=prefix, state=ScheduleState.PAUSED, page_size=1)]
    assert [(each.key, each.state) for each in paused] == [(keys[3], ScheduleState.PAUSED)]
    assert [each async for each in client.schedules.list(prefix=f"{prefix}-none")] == []
    labels = {"team": prefix, "env": "prod"}
    await client.schedules.create(schedule(f"{prefix}-labelled", labels=labels))
    assert [each.key async for each in client.schedules.list(labels=labels)] == [f"{prefix}-labelled"]
    assert [each async for each in client.schedules.list(labels=labels | {"env": "test"})] == []


async def test_instants_are_cancelled_and_schedules_deleted(client: AsyncCarillon) -> None:
    key, instants = fresh_key(), ahead(1, 2)
    await client.schedules.create(schedule(key, *instants))
    await client.schedules.cancel(key, instants[0].astimezone(timezone(timedelta(hours=5, minutes=30))))
    assert (await client.schedules.get(key)).next == instants[1:]
    with pytest.raises(NotFound):
        await client.schedules.cancel(key, instants[0])
    await client.schedules.delete(key)
    for call in (client.schedules.delete, client.schedules.get, client.schedules.fire, client.schedules.pause):
        with pytest.raises(NotFound) as caught:
            await call(key)
        assert (caught.value.status, caught.value.field) == (404, "key")


async def test_pause_resume_and_fire(client: AsyncCarillon, house: House) -> None:
    key, mine = fresh_key(), secrets.token_hex(8)
    made = await client.schedules.create(schedule(key))
    assert (await client.schedules.pause(key)).state is ScheduleState.PAUSED
    assert (await client.schedules.resume(key)).state is ScheduleState.ACTIVE
    fired = await client.schedules.fire(key, idempotency_key=mine)
    assert await client.schedules.fire(key, idempotency_key=mine) == fired
    asked = [each for each in await pending(house, key) if each.kind is OccurrenceKind.ASKED]
    assert [(each.message_id, each.due) for each in asked] == [(fired.id, fired.due)]
    assert (await client.schedules.fire(key)).id != fired.id
    assert (await client.schedules.get(key)).next == made.next


async def test_mistakes_are_named(client: AsyncCarillon, port: int) -> None:
    key = fresh_key()
    with pytest.raises(Invalid, match="no instant lies ahead") as invalid:
        await client.schedules.create(schedule(key, *ahead(-1)))
    assert (invalid.value.status, invalid.value.field) == (422, "schedules")
    await client.schedules.create(schedule(key))
    with pytest.raises(Conflict) as conflict:
        await client.schedules.create(schedule(key, labels={"a": "b"}))
    assert (conflict.value.status, conflict.value.field) == (409, "key")
    with pytest.raises(Invalid, match="not that of the path"):
        await client.schedules.put(key, schedule("another"))
    async with connect(f"http://127.0.0.1:{port}", token="unknown") as stranger:
        with pytest.raises(Unauthorized):
            await stranger.schedules.get(key)
    async with connect(f"http://127.0.0.1:{port}/nowhere", user=ADMIN) as lost:
        with pytest.raises(NotFound):
            await lost.schedules.get(key)


async def test_an_idempotency_key_of_the_caller_belongs_to_one_request(client: AsyncCarillon) -> None:
    key = fresh_key()
    await client.schedules.create(schedule(key), idempotency_key=key)
    with pytest.raises(Invalid) as caught:
        await client.schedules.create(schedule(fresh_key()), idempotency_key=key)
    assert caught.value.field == "Idempotency-Key"


async def test_a_service_has_a_namespace_of_its_own(client: AsyncCarillon, house: House, port: int) -> None:
    key = fresh_key()
    await client.schedules.create(schedule(key))
    issued = await house.admin.post("/tokens", {"name": "other"})
    async with connect(f"http://127.0.0.1:{port}", token=issued.json["token"]) as other:
        with pytest.raises(NotFound):
            await other.schedules.get(key)
        assert (await other.schedules.create(schedule(key, *ahead(9)))).created
    assert len((await client.schedules.get(key)).next) == 2


async def test_an_admin_sees_and_moves_what_a_service_has_scheduled(
    client: AsyncCarillon, house: House, port: int
) -> None:
    key = fresh_key()
    issued = (await house.admin.post("/tokens", {"name": "other"})).json
    namespace = f"token:{issued['id']}"
    async with connect(f"http://127.0.0.1:{port}", token=issued["token"]) as other:
        await other.schedules.create(schedule(key))
        with pytest.raises(Forbidden):
            await other.schedules.get(key, namespace="user:somebody@example.com")
    assert [each.key async for each in client.schedules.list(namespace=namespace)] == [key]
    assert (await client.schedules.pause(key, namespace=namespace)).state is ScheduleState.PAUSED
    assert (await client.schedules.resume(key, namespace=namespace)).state is ScheduleState.ACTIVE
    shown = await client.schedules.get(key, namespace=namespace)
    await client.schedules.fire(key, namespace=namespace)
    await client.schedules.cancel(key, shown.next[0], namespace=namespace)
    with pytest.raises(NotFound):
        await client.schedules.get(key)
    await client.schedules.delete(key, namespace=namespace)
    with pytest.raises(NotFound):
        await client.schedules.get(key, namespace=namespace)
