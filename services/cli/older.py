"""What an API of the release before this one has another way for: two releases work side by side."""

from collections.abc import Iterator
from typing import Any

from services.cli.api import Api
from services.cli.job_shape import state_of

Json = dict[str, Any]


def newest_jobs(api: Api, app_id: str | None, *, status: str | None = None, template: str = "") -> Iterator[Json]:
    """What `GET /jobs` lists, put together from the lists of the apps, which have the oldest first."""
    apps = [app_id] if app_id else [app["id"] for app in api.items("apps")]
    jobs = [job for app in apps for job in api.items("apps", app, "jobs", template=template)]
    for job in sorted(jobs, key=lambda job: (job["createdAt"], job["id"]), reverse=True):
        if status in {None, state_of(job)}:
            yield job
