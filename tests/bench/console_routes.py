"""The console's routes, each with what makes it dear: from the middle of a list, by a filter, of many."""

import base64
from datetime import datetime, timedelta
from urllib.parse import urlencode

import msgspec

from services.api.http.errors import fresh_id
from shared.clock.rules.outcomes import LetterPlace
from shared.core.instants import ns
from shared.jobs.rules.jobs import Job
from tests.bench.console_data import DEAD_KEY, OTHERS, PREFIX
from tests.bench.schedules import key

_LIMIT = 100


def paths(now: datetime, running: Job) -> dict[str, str]:
    """The paths by what they are called. `running` is a job with many batches."""
    return {**_of_deployment(), **_of_jobs(now, running), **_of_lists(now)}


def job_path(job: Job) -> str:
    """Where the job is shown."""
    return f"/apps/{job.app_id}/jobs/{job.id}"


def _of_deployment() -> dict[str, str]:
    names = ("/whoami", "/overview", "/processes", "/queues", "/minutes", "/settings")
    return {f"GET {name}": name for name in names} | {"GET /bulk-actions": _page("/bulk-actions")}


def _of_jobs(now: datetime, running: Job) -> dict[str, str]:
    app, job = f"/apps/{running.app_id}", job_path(running)
    return {
        "GET /jobs": _page("/jobs"),
        "GET /jobs, running": _page("/jobs", status="running"),
        "GET /jobs, completed": _page("/jobs", status="completed"),
        "GET /jobs, of an app and a template": _page("/jobs", app=running.app_id, template="like"),
        "GET /jobs, half a year back": _page("/jobs", cursor=_cursor(f"{ns(_half_a_year_before(now)):019}/")),
        "GET an app's jobs": _page(f"{app}/jobs"),
        "GET a job": job,
        "GET a job's batches": _page(f"{job}/batches"),
        "GET a job's failed batches": _page(f"{job}/batches", state="failed"),
        "GET a job's rate": f"{job}/rate",
        "GET a job's samples": f"{job}/samples",
    }


def _of_lists(now: datetime) -> dict[str, str]:
    half_a_year_back = _half_a_year_before(now)
    everywhere, others = {"namespace": "*"}, {"namespace": OTHERS}
    return {
        "GET /audit": _page("/audit"),
        "GET /audit, half a year back": _page("/audit", cursor=_cursor(fresh_id(ns(half_a_year_back)))),
        "GET /audit, by act": _page("/audit", act="job.stop"),
        "GET /audit, by whom": _page("/audit", by="user:7@example.com"),
        "GET /schedules": _page("/schedules"),
        "GET /schedules, by prefix": _page("/schedules", prefix=key(PREFIX, 7_000)[:-3]),
        "GET /schedules, active": _page("/schedules", state="active"),
        "GET a schedule": f"/schedules/{key(PREFIX, 7)}",
        "GET /schedules/due": "/schedules/due",
        "GET /dead-letters": _page("/dead-letters", **everywhere),
        "GET /dead-letters, half a year back": _page(
            "/dead-letters", **everywhere, cursor=_cursor(LetterPlace(half_a_year_back, ""))
        ),
        "GET /dead-letters, of a namespace": _page("/dead-letters", **others),
        "GET /dead-letters, of a key": _page("/dead-letters", **others, key=f"{DEAD_KEY}-7"),
        "GET /dead-letters/errors": "/dead-letters/errors?namespace=*",
        "GET a dead letter": f"/dead-letters/{OTHERS}-7?namespace=*",
    }


def _half_a_year_before(now: datetime) -> datetime:
    return now - timedelta(days=182)


def _page(path: str, **query: str) -> str:
    return f"{path}?{urlencode({**query, 'limit': _LIMIT})}"


def _cursor(place: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")
