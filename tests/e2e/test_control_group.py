"""Control groups on real servers: who is held out gets nothing on any device, and stands in the file."""

import pytest

from shared.push.rules.choices import held_out
from tests.e2e.house import House

pytestmark = [pytest.mark.e2e, pytest.mark.native]

FOUR_DEVICES = "UPDATE {table} SET user_id = 'u' || seq_id % {users}"


@pytest.mark.parametrize(
    ("devices", "users", "batch"), [pytest.param(800, 200, "1000", marks=pytest.mark.slow), (12_000, 3_000, "1000")]
)
async def test_users_are_held_out_with_all_their_devices(house: House, devices: int, users: int, batch: str) -> None:
    """A user's devices lie far from each other, in several batches where there are several."""
    await house.devices(devices)
    await house.change_devices(FOUR_DEVICES.replace("{users}", str(users)))
    await house.start("worker", CARILLON_WORKER_BATCH_SIZE=batch)
    await house.file(b"", "bucket")
    job_id = await house.post(control_group=0.2)
    job = await house.closed(job_id)
    assert job.totals is not None
    lines = (await house.content(job.control_group_csv_path)).decode().splitlines()
    assert lines[0] == "controlGroupUserIds"
    spared = set(lines[1:])
    assert len(spared) == len(lines) - 1
    whole = devices <= int(batch)
    assert spared == held_out([f"u{n}" for n in range(users)], job_id, 0.2, by_rank=whole)
    if whole:
        assert len(spared) == users / 5
    assert job.totals.held_out == len(spared) * 4
    assert job.totals.sent == devices - job.totals.held_out
    records = await house.records(job.totals.sent)
    assert not spared & {record["metadata"]["userId"] for record in records}
    assert len({record["DeviceToken"] for record in records}) == job.totals.sent


@pytest.mark.proof
@pytest.mark.parametrize(("share", "sent"), [(0.2, 8), pytest.param(0.4, 6, marks=pytest.mark.slow)])
async def test_of_ten_users_in_a_file(house: House, share: float, sent: int) -> None:
    await house.devices(10)
    await house.start("worker")
    content = b"id\n" + b"".join(b"u%d\n" % number for number in range(1, 11))
    job = await house.closed(await house.post(csv_path=await house.file(content), control_group=share))
    assert job.totals is not None
    assert (job.totals.sent, job.totals.held_out) == (sent, 10 - sent)
    assert len(await house.records(sent)) == sent
