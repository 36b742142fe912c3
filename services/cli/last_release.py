"""Requests to an API of the last release, which lacks a route: two releases work side by side."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from services.cli.api import Api
from services.cli.job_shape import fold_zones, state_of
from services.cli.output.times import read_wire

Json = Mapping[str, Any]


def newest_jobs(
    api: Api,
    app_id: str | None,
    *,
    status: str | None = None,
    template: str = "",
    by: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    grouped: bool = False,
) -> Iterator[Json]:
    """The list of `GET /jobs`, made from the lists of the apps, which have the oldest first."""
    apps = [app_id] if app_id else [app["id"] for app in api.items("apps")]
    jobs = [job for app in apps for job in api.items("apps", app, "jobs", template=template)]
    newest = sorted(jobs, key=lambda job: (job["createdAt"], job["id"]), reverse=True)
    for job in fold_zones(newest) if grouped else newest:
        made = read_wire(job["createdAt"])
        in_time = made is None or ((since is None or since <= made) and (until is None or made < until))
        if in_time and status in {None, state_of(job)} and by in {"", job["createdBy"]}:
            yield job
