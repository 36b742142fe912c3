"""`/ui/messages`: the accounts of an app as a live picture, and one of them with what is done to it."""

from collections.abc import Mapping
from typing import Any

from services.api.http.pages.apps import choose_app, read_apps
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_THINGS, check_name
from services.api.http.pages.visits import Visit, address
from services.api.messages.pages.standing import allowed_of, explain_bound, health_of, read_running, speed_of

SECTION = "/messages"
ACCOUNTS_SHOWN = 6
"""How many accounts are live at once: each is a read of its own."""
JOBS_SHOWN = 10
_KEPT_SECONDS = 30

_ACCOUNT = "/apps/{}/credentials/{}"
_PAGE = "/messages/{app_id:str}/credentials/{credential_id:str}"


class AccountPages(PageSet):
    """Accounts that send messages."""

    section = NavSection("Messages", SECTION, order=110)

    @PageRoute("/messages", template="messages/accounts.html", refresh_seconds=2, shared_by_roles=True)
    async def show_accounts(self, visit: Visit) -> Values:
        """All accounts that an app may use."""
        apps = await read_apps(visit)
        app = await choose_app(visit, apps)
        apps = apps if app is None or app in apps else [app, *apps]
        values = {"title": "Messages", "apps": apps, "app": app, "accounts": [], "jobs": [], "next": ""}
        return values if app is None else values | await self._read_standing(visit, app["id"])

    @PageRoute(_PAGE, template="messages/account.html", refresh_seconds=2, shared_by_roles=True)
    async def show_account(self, visit: Visit) -> Values:
        """One account."""
        app_id, credential_id = visit.path("app_id"), visit.path("credential_id")
        app, account, listed = await visit.read_all(
            visit.read("/apps/{}", app_id),
            visit.read(_ACCOUNT, app_id, credential_id),
            visit.read_list("/jobs", app=app_id),
        )
        own = [job for job in listed.value if job.get("credentialId") == credential_id]
        jobs = await read_running(visit, app_id, own)
        return {
            "title": account["name"],
            "app": app,
            "account": account,
            "is_own": account["appId"] == app_id,
            "health": health_of(account),
            "allowed": allowed_of(account),
            "bound": explain_bound(account),
            "speed": speed_of(account, jobs),
            "jobs": jobs,
            "next": listed.next,
            "name": _name_to_type(account),
        }

    @FormRoute(_PAGE + "/suspend", page="show_account")
    async def suspend_account(self, visit: Visit) -> Moved:
        """Have it send nothing."""
        account = await visit.read(_ACCOUNT, *_ids(visit))
        check_name(visit.form, _name_to_type(account))
        return await self._act(visit, "suspend", "suspended")

    @FormRoute(_PAGE + "/activate", page="show_account")
    async def activate_account(self, visit: Visit) -> Moved:
        """Have it send again."""
        return await self._act(visit, "activate", "activated")

    @FormRoute(_PAGE + "/test", page="show_account")
    async def test_account(self, visit: Visit) -> Moved:
        """Send a test message."""
        await visit.send("POST", f"{_ACCOUNT}/test", *_ids(visit))
        return Moved(address("/messages/{}/credentials/{}", *_ids(visit)), "tested")

    @FormRoute(_PAGE + "/delete", page="show_account")
    async def delete_account(self, visit: Visit) -> Moved:
        """Delete it."""
        await visit.send("DELETE", _ACCOUNT, *_ids(visit))
        return Moved(f"{SECTION}?app={address('{}', visit.path('app_id'))}", "deleted")

    async def _act(self, visit: Visit, act: str, said: str) -> Moved:
        await visit.send("POST", f"{_ACCOUNT}/{act}", *_ids(visit))
        return Moved(address("/messages/{}/credentials/{}", *_ids(visit)), said)

    async def _read_standing(self, visit: Visit, app_id: str) -> Values:
        listed, jobs = await visit.read_all(
            visit.read_list("/apps/{}/credentials", app_id, limit=ACCOUNTS_SHOWN),
            visit.read("/jobs", app=app_id, limit=50),
        )
        read = await visit.read_all(
            *(visit.try_read(f"The account {each['name']}", _ACCOUNT, app_id, each["id"]) for each in listed.value)
        )
        accounts = [account for account in read if account is not None]
        sending = await read_running(visit, app_id, [job for job in jobs if job.get("credentialId")])
        return {
            "accounts": [
                (each, health_of(each), explain_bound(each), allowed_of(each), speed_of(each, sending))
                for each in accounts
            ],
            "allowed": sum(allowed_of(each) for each in accounts),
            "names": {each["id"]: each["name"] for each in listed.value},
            "jobs": sending[:JOBS_SHOWN],
            "next": listed.next,
        }


def _ids(visit: Visit) -> tuple[str, str]:
    return visit.path("app_id"), visit.path("credential_id")


def _name_to_type(account: Mapping[str, Any]) -> str:
    """What is typed before it is suspended, `""` where few messages wait."""
    return str(account["name"]) if account["queue"]["messages"] > MANY_THINGS else ""
