"""`/ui/messages`: the accounts of an app as a live picture, and one of them with what is done to it."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.api.http.pages.apps import choose_app, read_apps
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_THINGS, check_name
from services.api.http.pages.visits import Visit, address

ACCOUNTS_SHOWN = 6
"""How many accounts are live at once: each is a read of its own."""
JOBS_SHOWN = 10

SECTION = NavSection("Messages", "/messages", order=110)
_SAID = {"suspend": "suspended", "activate": "activated", "test": "tested"}
_ACCOUNT = "/apps/{}/credentials/{}"
_PAGE = "/messages/{app_id:str}/credentials/{credential_id:str}"
_RUNNING = "running"
_RUNNING_SHOWN = 4
"""The most running jobs that a page reads alone."""

Account = Mapping[str, Any]
JobAnswer = Mapping[str, Any]

_BY_RATE = "rate"
_BOUNDS = {
    _BY_RATE: "It sends as fast as its rate allows.",
    "maxInFlight": "All its parallel calls are in progress: the provider answers slowly.",
    "clock": "A worker's clock is too far from the database's time.",
}


class AccountPages(PageSet):
    """Accounts that send messages."""

    section = SECTION

    @PageRoute("/messages", template="messages/accounts.html", refresh_seconds=2, shared_by_roles=True)
    async def show_accounts(self, visit: Visit) -> Values:
        apps = await read_apps(visit)
        app = await choose_app(visit, apps)
        apps = apps if app is None or app in apps else [app, *apps]
        values = {"title": "Messages", "apps": apps, "app": app, "accounts": [], "jobs": [], "next": ""}
        return values if app is None else values | await self._read_standing(visit, app["id"])

    @PageRoute(_PAGE, template="messages/account.html", refresh_seconds=2, shared_by_roles=True)
    async def show_account(self, visit: Visit) -> Values:
        app_id, credential_id = visit.path("app_id"), visit.path("credential_id")
        app, account, listed = await visit.read_all(
            visit.read("/apps/{}", app_id),
            visit.read(_ACCOUNT, app_id, credential_id),
            visit.read_list("/jobs", app=app_id),
        )
        own = [job for job in listed.value if job.get("credentialId") == credential_id]
        jobs = await _read_running(visit, app_id, own)
        return {
            "title": account["name"],
            "app": app,
            "account": account,
            "is_own": account["appId"] == app_id,
            "health": _health_of(account),
            "allowed": _allowed_of(account),
            "bound": _explain_bound(account),
            "speed": _speed_of(account, jobs),
            "jobs": jobs,
            "next": listed.next,
            "name": _name_to_type(account),
        }

    @FormRoute(_PAGE + "/suspend", page="show_account")
    @FormRoute(_PAGE + "/activate", page="show_account")
    @FormRoute(_PAGE + "/test", page="show_account")
    async def move_account(self, visit: Visit) -> Moved:
        """Suspend or activate it, or send a test message."""
        if visit.act == "suspend":
            check_name(visit.form, _name_to_type(await visit.read(_ACCOUNT, *_ids(visit))))
        await visit.send("POST", f"{_ACCOUNT}/{visit.act}", *_ids(visit))
        return Moved(address("/messages/{}/credentials/{}", *_ids(visit)), _SAID[visit.act])

    @FormRoute(_PAGE + "/delete", page="show_account")
    async def delete_account(self, visit: Visit) -> Moved:
        await visit.send("DELETE", _ACCOUNT, *_ids(visit))
        return Moved(f"/messages?app={address('{}', visit.path('app_id'))}", "deleted")

    async def _read_standing(self, visit: Visit, app_id: str) -> Values:
        listed, jobs = await visit.read_all(
            visit.read_list("/apps/{}/credentials", app_id, limit=ACCOUNTS_SHOWN),
            visit.read("/jobs", app=app_id, limit=50),
        )
        read = await visit.read_all(
            *(visit.try_read(f"The account {each['name']}", _ACCOUNT, app_id, each["id"]) for each in listed.value)
        )
        accounts = [account for account in read if account is not None]
        sending = await _read_running(visit, app_id, [job for job in jobs if job.get("credentialId")])
        return {
            "accounts": [
                (each, _health_of(each), _explain_bound(each), _allowed_of(each), _speed_of(each, sending))
                for each in accounts
            ],
            "allowed": sum(_allowed_of(each) for each in accounts),
            "names": {each["id"]: each["name"] for each in listed.value},
            "jobs": sending[:JOBS_SHOWN],
            "next": listed.next,
        }


def _ids(visit: Visit) -> tuple[str, str]:
    return visit.path("app_id"), visit.path("credential_id")


def _name_to_type(account: Mapping[str, Any]) -> str:
    """The name that confirms suspending, `""` if few messages wait."""
    return str(account["name"]) if account["queue"]["messages"] > MANY_THINGS else ""


def _health_of(account: Account) -> str:
    """The state of an account in one word."""
    if account["status"] != "active":
        return str(account["status"])
    if account["holdUntil"]:
        return "held"
    if account["effectiveRate"] < account["rate"]:
        return "slowed"
    return "sending" if _sendable(account) else "ready"


def _explain_bound(account: Account) -> str:
    """The bound of an account's rate now, as a sentence."""
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


async def _read_running(visit: Visit, app_id: str, jobs: Sequence[JobAnswer]) -> list[JobAnswer]:
    """The same jobs. The first running ones are read alone, because only that counts to the message."""
    asked = [job["id"] for job in jobs if job["state"] == _RUNNING][:_RUNNING_SHOWN]
    read = await visit.read_all(
        *(visit.try_read("The progress of a job", "/apps/{}/jobs/{}", app_id, job_id) for job_id in asked)
    )
    exact = {job["id"]: job for job in read if job is not None}
    return [exact.get(job["id"], job) for job in jobs]


def _allowed_of(account: Account) -> float:
    """How many messages a second an account may send now: none during a pause."""
    return 0 if account["holdUntil"] else float(account["effectiveRate"])


def _speed_of(account: Account, jobs: Sequence[JobAnswer]) -> float | None:
    """The messages per second: the allowed rate if nothing else bounds it, else the rate of running jobs in the last
    half minute, in whole batches; `None` if unknown."""
    if not _sendable(account) or not _allowed_of(account):
        return 0
    if account["limitedBy"] == _BY_RATE:
        return _allowed_of(account)
    running = [job for job in jobs if job.get("credentialId") == account["id"] and job["state"] == _RUNNING]
    are_known = all("messages" in job for job in running)
    return (sum(job["rate"] for job in running) or None) if are_known else None


def _sendable(account: Account) -> int:
    """The waiting messages of running jobs."""
    queue = account["queue"]
    return int(queue["messages"] - queue["held"])
