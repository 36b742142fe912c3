"""Calls that the real API processes and whose answers are lost: a proxy in between resets the connection."""

from datetime import timedelta
from pathlib import Path

import pytest

from carillon import AsyncCarillon, NotFound, PushJob
from shared.clock.rules.occurrences import OccurrenceKind
from tests.client.both import connect
from tests.client.cutting import CuttingProxy
from tests.client.made import fresh_key, pending, schedule
from tests.services.api.client import ADMIN
from tests.services.api.conftest import House

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

LOST = 3


async def test_a_schedule_is_made_once(cut_off: AsyncCarillon, proxy: CuttingProxy, house: House) -> None:
    wanted = schedule(fresh_key())
    proxy.to_lose = LOST
    made = await cut_off.schedules.create(wanted)
    assert [answer[:12] for answer in proxy.lost] == [b"HTTP/1.1 201", *[b"HTTP/1.1 200"] * (LOST - 1)]
    assert (made.key, made.next, made.created) == (wanted.key, tuple(wanted.instants), False)
    assert [each.due for each in await pending(house, wanted.key)] == list(wanted.instants)


async def test_a_callback_is_fired_once(cut_off: AsyncCarillon, proxy: CuttingProxy, house: House) -> None:
    key = fresh_key()
    await cut_off.schedules.create(schedule(key))
    proxy.to_lose = LOST
    fired = await cut_off.schedules.fire(key)
    assert [answer[:12] for answer in proxy.lost] == [b"HTTP/1.1 202"] * LOST
    asked = [each for each in await pending(house, key) if each.kind is OccurrenceKind.ASKED]
    assert [(each.message_id, each.due) for each in asked] == [(fired.id, fired.due)]


async def test_what_was_deleted_by_a_lost_attempt_is_deleted(cut_off: AsyncCarillon, proxy: CuttingProxy) -> None:
    key = fresh_key()
    made = await cut_off.schedules.create(schedule(key))
    proxy.to_lose = 1
    await cut_off.schedules.cancel(key, made.next[0])
    proxy.to_lose = LOST
    await cut_off.schedules.delete(key)
    assert [answer[9:12] for answer in proxy.lost] == [b"204", b"204", *[b"404"] * (LOST - 1)]
    with pytest.raises(NotFound):
        await cut_off.schedules.delete(key)


async def test_what_is_repeated_within_an_attempt_counts_too(proxy: CuttingProxy) -> None:
    """An idempotent request is sent once more where a kept connection breaks."""
    key = fresh_key()
    async with connect(f"http://127.0.0.1:{proxy.port}", user=ADMIN, attempts=1) as client:
        await client.schedules.create(schedule(key))
        proxy.to_lose = 1
        await client.schedules.delete(key)
    assert [answer[9:12] for answer in proxy.lost] == [b"204"]


async def test_moves_of_a_job_are_not_refused_for_having_been_done(
    cut_off: AsyncCarillon, proxy: CuttingProxy, house: House
) -> None:
    app_id = await house.app_with_template()
    proxy.to_lose = 2
    job = await cut_off.jobs.create(app_id, PushJob(service="apns", template="like"))
    assert len([each async for each in cut_off.jobs.list(app_id)]) == 1
    for move, status in ((cut_off.jobs.pause, "paused"), (cut_off.jobs.resume, ""), (cut_off.jobs.stop, "stopped")):
        proxy.to_lose = 2
        assert (await move(app_id, job.id)).status == status


@pytest.mark.slow
async def test_a_localized_job_is_made_once_and_moved(
    cut_off: AsyncCarillon, proxy: CuttingProxy, house: House
) -> None:
    app_id = await house.app_with_template()
    starts_at = house.clock.now() + timedelta(hours=20)
    proxy.to_lose = LOST
    job = await cut_off.jobs.create(
        app_id, PushJob(service="apns", template="like", localized=True, starts_at=starts_at)
    )
    assert len(proxy.lost) == LOST
    assert len([each async for each in cut_off.jobs.list(app_id)]) == len(job.zones) > 24
    groups = cut_off.groups
    for move, status in ((groups.pause, "paused"), (groups.resume, ""), (groups.stop, "stopped")):
        proxy.to_lose = 2
        assert {zone.status for zone in (await move(app_id, job.group_id)).zones} == {status}


async def test_a_file_is_uploaded_whatever_answers_are_lost(
    cut_off: AsyncCarillon, proxy: CuttingProxy, house: House, tmp_path: Path
) -> None:
    """Among these answers is the consent to send it, without which it is sent in the end."""
    file = tmp_path / "users.csv"
    file.write_bytes(b"id\nu1\n")
    for lost in range(1, 5):
        proxy.to_lose = lost
        path = await cut_off.uploads.put(file)
        assert (await house.blobs.stat(path)).size == 6
        assert proxy.to_lose == 0


async def test_items_of_a_lost_chunk_are_made_once(cut_off: AsyncCarillon, proxy: CuttingProxy) -> None:
    prefix = fresh_key()
    proxy.to_lose = 1
    wanted = [schedule(f"{prefix}-{n}") for n in range(5)]
    results = [result async for result in cut_off.schedules.bulk(wanted)]
    assert [result.status for result in results] == [200] * 5
    assert len([each async for each in cut_off.schedules.list(prefix=prefix)]) == 5


async def test_a_put_is_repeated(cut_off: AsyncCarillon, proxy: CuttingProxy) -> None:
    key, wanted = fresh_key(), schedule()
    proxy.to_lose = LOST
    assert (await cut_off.schedules.put(key, wanted)).next == tuple(wanted.instants)
    assert len(proxy.lost) == LOST
