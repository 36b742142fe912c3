"""Schedules of Lumen's services, and instants of theirs that were refused to the last attempt."""

from datetime import datetime, timedelta
from typing import Any

from shared.clock.rules.outcomes import DeadLetter, Outcome, OutcomeResult
from shared.clock.rules.schedules import schedule_id
from shared.store import Store
from tests.browser.lumen.ids import next_id
from tests.services.api.client import Client

_ERRORS = (
    ("invoice.reminder.7", "503 Service Unavailable: billing is being upgraded", 10, 14),
    ("invoice.reminder.9", "503 Service Unavailable: billing is being upgraded", 10, 13),
    ("invoice.reminder.12", "503 Service Unavailable: billing is being upgraded", 10, 11),
    ("reports.daily", "404 Not Found: no report named daily", 5, 95),
)


REPORTS = "reports.daily"
_REPORTS_MS = (38, 12, 51, 29, 17, 44, 23)
"""How late the last reports were, the newest first."""


async def add_schedules(client: Client, now: datetime) -> None:
    """Have them made, as their owners do."""
    soon = [(now + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:00Z") for minutes in (12, 95, 300)]
    wanted: dict[str, dict[str, Any]] = {
        REPORTS: {"cron": "0 7 * * *", "timezone": "Europe/Paris", "labels": {"team": "finance"}},
        "catalog.refresh": {"every": 900, "labels": {"team": "shop"}},
        "carts.abandoned": {"cron": "*/30 8-22 * * *", "timezone": "Europe/Lisbon", "labels": {"team": "shop"}},
        "loyalty.points-expire": {"cron": "0 3 1 * *", "timezone": "UTC"},
        "trial.ends.4711": {"schedules": soon},
    }
    for number in (7, 9, 12, 16, 21, 28, 35):
        at = (now + timedelta(minutes=number * 37)).strftime("%FT%TZ")
        wanted[f"invoice.reminder.{number}"] = {"schedules": [at]}
    for key, when in wanted.items():
        url = f"https://{key.partition('.')[0]}.lumen.example/hooks/{key.partition('.')[2].partition('.')[0]}"
        callback = {"type": "http", "data": {"url": url, "payload": {"key": key}}}
        made = await client.post("/schedules", {"key": key, "callback": callback} | when)
        assert made.status == 201, made.body


async def add_dead_letters(store: Store, namespace: str, now: datetime) -> str:
    """Those that are to be looked at: the id of the first."""
    letters = [
        DeadLetter(
            id=(id := next_id()), death=id,
            namespace=namespace, key=key, schedule_id=schedule_id(namespace, key), generation="1",
            due=now - timedelta(minutes=ago + 42), died_at=now - timedelta(minutes=ago), attempts=attempts,
            error=error,
        )
        for key, error, attempts, ago in _ERRORS
    ]  # fmt: skip
    await store.dead_letters.add(letters)
    return letters[0].id


async def add_outcomes(store: Store, namespace: str, now: datetime) -> None:
    """The last reports, one a day; that of three days ago was refused once."""
    schedule = await store.schedules.get(schedule_id(namespace, REPORTS))
    assert schedule is not None
    due = [now.replace(hour=6, minute=0, second=0, microsecond=0) - timedelta(days=1 + n) for n in range(7)]
    fired = [_outcome(schedule.owner, at, late, OutcomeResult.FIRED) for at, late in zip(due, _REPORTS_MS, strict=True)]
    fired[2] = _outcome(schedule.owner, due[2], 30_041, OutcomeResult.FIRED, attempt=2)
    refused = _outcome(schedule.owner, due[2], 22, OutcomeResult.FAILED, error="503 Service Unavailable")
    await store.outcomes.add([*fired, refused])


def _outcome(owner: str, due: datetime, late_ms: int, result: OutcomeResult, **fields: Any) -> Outcome:
    at = due + timedelta(milliseconds=late_ms)
    return Outcome(
        id=next_id(), owner=owner, due=due, at=at, late_ms=late_ms, result=result, **({"attempt": 1} | fields)
    )
