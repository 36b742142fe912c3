"""How an account stands, in words."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.api.http.pages.visits import Visit

RUNNING = "running"
RUNNING_SHOWN = 4
"""The most running jobs of which a page asks how far they are."""

Account = Mapping[str, Any]
JobAnswer = Mapping[str, Any]

_BY_RATE = "rate"
_BOUNDS = {
    _BY_RATE: "It sends as fast as its rate allows.",
    "maxInFlight": "All its parallel calls are in progress: the provider answers slowly.",
    "clock": "A worker's clock is too far from the database's time.",
}


def health_of(account: Account) -> str:
    """One word for how an account stands."""
    if account["status"] != "active":
        return str(account["status"])
    if account["holdUntil"]:
        return "held"
    if account["effectiveRate"] < account["rate"]:
        return "slowed"
    return "sending" if _sendable(account) else "ready"


def explain_bound(account: Account) -> str:
    """What bounds an account now, as a sentence."""
    match account["status"], account["limitedBy"]:
        case "rejected", _:
            return "The provider rejects its secret. Replace the secret."
        case "suspended", _:
            return "It was suspended by hand."
        case _, "provider":
            held = "The provider asked for a pause."
            slowed = "The provider said “too fast”. The rate rises by a tenth every ten seconds."
            return held if account["holdUntil"] else slowed
        case _, "work":
            return "Workers are fetching its messages." if _sendable(account) else "Nothing is waiting."
        case _, bound:
            return _BOUNDS.get(bound or "", "")


async def read_running(visit: Visit, app_id: str, jobs: Sequence[JobAnswer]) -> list[JobAnswer]:
    """The same jobs, those that run as a single one is shown: to the message. Of many that run, some stay as they
    are."""
    asked = [job["id"] for job in jobs if job["state"] == RUNNING][:RUNNING_SHOWN]
    read = await visit.read_all(
        *(visit.try_read("The progress of a job", "/apps/{}/jobs/{}", app_id, job_id) for job_id in asked)
    )
    exact = {job["id"]: job for job in read if job is not None}
    return [exact.get(job["id"], job) for job in jobs]


def allowed_of(account: Account) -> float:
    """How many messages a second an account may send now: none during a pause."""
    return 0 if account["holdUntil"] else float(account["effectiveRate"])


def speed_of(account: Account, jobs: Sequence[JobAnswer]) -> float | None:
    """How many messages a second leave: what is allowed where only that bounds it, else what jobs that run tell of the
    last half minute, in whole batches; `None` where they do not."""
    if not _sendable(account) or not allowed_of(account):
        return 0
    if account["limitedBy"] == _BY_RATE:
        return allowed_of(account)
    running = [job for job in jobs if job.get("credentialId") == account["id"] and job["state"] == RUNNING]
    are_known = all("messages" in job for job in running)
    return (sum(job["rate"] for job in running) or None) if are_known else None


def _sendable(account: Account) -> int:
    """How many messages wait of jobs that run."""
    queue = account["queue"]
    return int(queue["messages"] - queue["held"])
