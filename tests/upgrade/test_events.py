"""The last release ignores who did something to a job, and what it writes itself is shown as done by nobody known."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.house import House
from tests.e2e.test_over_http import an_app, is_completed
from tests.upgrade.test_side_by_side import customer_of
from tests.waiting import until

pytestmark = [pytest.mark.upgrade, pytest.mark.native]


def doers(job: dict[str, Any]) -> dict[str, set[str | None]]:
    """The names of those who did something, by stage."""
    return {
        stage["name"]: {each["by"] and each["by"]["name"] for each in stage["events"]} for stage in job["statusEvents"]
    }


async def test_events_are_read_by_both_versions(house: House, release: Path) -> None:
    before, after = await customer_of(house, release), await customer_of(house, None)
    await house.devices(100)
    app_id = await an_app(house, after)
    starts = int((datetime.now(UTC) + timedelta(minutes=5)).timestamp() * 1e9)
    ask = {"service": "apns", "startsAt": starts}
    status, job = await after.call("POST", f"/apps/{app_id}/jobs?template=welcome", ask)
    assert status == 201, job
    path = f"/apps/{app_id}/jobs/{job['id']}"
    for move in ("pause", "resume"):
        status, moved = await after.call("PUT", f"{path}/{move}")
        assert status == 200, moved
    await house.jobs.begin(await house.key_of(job["id"]))
    for service in ("scheduler", "worker"):
        await house.start(service, release)
    await until(lambda: is_completed(after, path), "the job to complete")
    _, seen = await before.call("GET", path)
    _, shown = await after.call("GET", path)
    assert {stage["name"] for stage in seen["statusEvents"]} == set(doers(shown))
    assert doers(shown).pop("job_paused") == doers(shown).pop("job_resumed") == {"admin@example.com"}
    assert {name for stage, names in doers(shown).items() if stage.endswith("_worker") for name in names} == {None}
