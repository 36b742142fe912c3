"""`/ui/access`: users, tokens, and the browsers in which the reader is signed in; and `/ui/apps`: the apps."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values, check_name, refuse
from services.api.http.pages.visits import SHOWN, ApiProblem, Visit, address

_ACCESS = "/access"
_USER, _TOKEN = "/users/{}", "/tokens/{}"
_SECRET = "accounts/secret.html"
_DIGITS = 9
_ADMIN, _APP = "admin", "app/"


class AccessPages(PageSet):
    section = NavSection("Access", _ACCESS, order=320, group="Admin")

    @PageRoute("/access", template="accounts/access.html")
    async def show_access(self, visit: Visit) -> Values:
        """The reader's rights and sessions; for admins also all users and tokens."""
        who, sessions = await visit.read_all(visit.read("/whoami"), visit.read("/sessions"))
        values: dict[str, Any] = {"title": "Access", "who": who, "sessions": sessions, "users": [], "tokens": []}
        values |= {"next": "", "user_next": "", "own_grants": write_grants(who).splitlines(), "grants": write_grants}
        if visit.caller.is_admin:
            users, tokens = await visit.read_all(
                visit.read_list("/users", cursor=visit.query("users")), visit.read_list("/tokens")
            )
            values |= {"users": users.value, "tokens": tokens.value, "next": tokens.next, "user_next": users.next}
        return values

    @PageRoute("/access/users/{user_id:str}", template="accounts/user.html")
    async def show_user(self, visit: Visit) -> Values:
        user = await visit.read(_USER, visit.path("user_id"))
        acts = await visit.read("/audit", on=user["id"], limit=SHOWN // 5)
        return {"title": user["email"], "user": user, "grants": write_grants(user), "acts": acts}

    @FormRoute("/access/users", page="show_access")
    async def add_user(self, visit: Visit) -> Moved:
        made = await visit.send("POST", "/users", body={"email": visit.read_field("email")} | _read_access(visit))
        return Moved(f"{_ACCESS}/users/{made['id']}", "made")

    @FormRoute("/access/users/{user_id:str}", page="show_user")
    async def change_user(self, visit: Visit) -> Moved:
        user_id = visit.path("user_id")
        user = await visit.read(_USER, user_id)
        await visit.send("PUT", _USER, user_id, body={"email": user["email"]} | _read_access(visit))
        return Moved(f"{_ACCESS}/users/{user_id}", "saved")

    @FormRoute("/access/users/{user_id:str}/delete", page="show_user")
    async def delete_user(self, visit: Visit) -> Moved:
        await visit.send("DELETE", _USER, visit.path("user_id"))
        return Moved(_ACCESS, "deleted")

    @FormRoute("/access/tokens", page="show_access", template=_SECRET)
    async def create_token(self, visit: Visit) -> Values:
        body = {"name": visit.read_field("name"), "namespace": visit.read_field("namespace")}
        issued = await visit.send("POST", "/tokens", body=body | _read_access(visit) | _read_expiry(visit))
        return _show_secret(issued)

    @FormRoute("/access/tokens/{token_id:str}/rotate", page="show_access", template=_SECRET)
    async def rotate_token(self, visit: Visit) -> Values:
        body = {"overlapSeconds": _read_count(visit, "overlap")}
        return _show_secret(await visit.send("POST", _TOKEN + "/rotate", visit.path("token_id"), body=body))

    @FormRoute("/access/tokens/{token_id:str}/revoke", page="show_access")
    async def revoke_token(self, visit: Visit) -> Moved:
        await visit.send("DELETE", _TOKEN, visit.path("token_id"))
        return Moved(_ACCESS, "revoked")

    @FormRoute("/access/sessions/{session_id:str}/delete", page="show_access")
    async def end_session(self, visit: Visit) -> Moved:
        await visit.send("DELETE", "/sessions/{}", visit.path("session_id"))
        return Moved(_ACCESS, "ended")


def _read_access(visit: Visit) -> dict[str, Any]:
    apps, roles = read_grants(visit.form.get("roles", ""))
    return {"isAdmin": "admin" in visit.form, "allowedApps": apps, "roles": roles}


def _read_expiry(visit: Visit) -> dict[str, Any]:
    days = _read_count(visit, "days")
    if not days:
        return {}
    ends = datetime.now(UTC) + timedelta(days=min(days, 3_650))
    return {"expiresAt": ends.isoformat(timespec="seconds").replace("+00:00", "Z")}


def _read_count(visit: Visit, field: str) -> int:
    """A whole number, 0 if the field is empty. Raises `ApiProblem` for anything else: read as 0, it would make a token
    that never ends, or end a secret at once."""
    typed = visit.read_field(field) or "0"
    if not (typed.isascii() and typed.isdecimal() and len(typed) <= _DIGITS):
        raise ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, "a whole number is needed", field)
    return int(typed)


def _show_secret(issued: Any) -> Values:
    return {"title": "A new secret", "token": issued}


def write_grants(holder: Mapping[str, Any]) -> str:
    """The grants of a user or a token, one per line: `app/<id> operator`."""
    apps = [f"{_APP}{app} {_ADMIN}" for app in holder.get("allowedApps") or ()]
    return "\n".join(apps + [f"{over} {role}" for over, role in (holder.get("roles") or {}).items()])


def read_grants(text: str) -> tuple[list[str], dict[str, str]]:
    """The apps that these grants administer, and the other grants: the API takes them in two fields. Raises
    `ApiProblem` for an invalid line."""
    apps: list[str] = []
    roles: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        words: Sequence[str] = line.split()
        if len(words) != 2:
            raise refuse(
                "roles", f"a line is an object, a space and a role, for example app/<id> operator: not {line!r}"
            )
        over, role = words
        if over.startswith(_APP) and role == _ADMIN:
            apps.append(over.removeprefix(_APP))
        else:
            roles[over] = role
    return apps, roles


COUNTED = 100
"""How far the templates and the jobs of an app are counted."""


class AppPages(PageSet):
    section = NavSection("Apps", "/apps", order=300, group="Admin")

    @PageRoute("/apps", template="accounts/apps.html")
    async def list_apps(self, visit: Visit) -> Values:
        answer = await visit.read_list("/apps")
        return {"title": "Apps", "apps": answer.value, "next": answer.next}

    @PageRoute("/apps/new", template="accounts/new-app.html")
    async def show_new_app(self, visit: Visit) -> Values:
        if not visit.caller.is_admin:
            raise ApiProblem(HTTPStatus.FORBIDDEN, "only admins make apps")
        return {"title": "New app"}

    @FormRoute("/apps/new", page="show_new_app")
    async def create_app(self, visit: Visit) -> Moved:
        made = await visit.send("POST", "/apps", body=_read_app(visit))
        return Moved(address("/apps/{}", made["id"]), "made")

    @PageRoute("/apps/{app_id:str}", template="accounts/app.html")
    async def show_app(self, visit: Visit) -> Values:
        app = await visit.read("/apps/{}", visit.path("app_id"))
        templates, jobs = await visit.read_all(
            visit.try_read("The number of templates", "/apps/{}/templates", app["id"], limit=COUNTED + 1),
            visit.try_read("The number of jobs", "/jobs", app=app["id"], limit=COUNTED + 1),
        )
        return {"title": app["name"], "app": app, "templates": _count(templates), "jobs": _count(jobs)}

    @FormRoute("/apps/{app_id:str}", page="show_app")
    async def save_app(self, visit: Visit) -> Moved:
        app_id = visit.path("app_id")
        await visit.send("PUT", "/apps/{}", app_id, body=_read_app(visit))
        return Moved(address("/apps/{}", app_id), "saved")

    @FormRoute("/apps/{app_id:str}/delete", page="show_app")
    async def delete_app(self, visit: Visit) -> Moved:
        app = await visit.read("/apps/{}", visit.path("app_id"))
        check_name(visit.form, app["name"])
        await visit.send("DELETE", "/apps/{}", app["id"])
        return Moved("/apps", "deleted")


def _count(found: list[Any] | None) -> str:
    if found is None:
        return ""
    return str(len(found)) if len(found) <= COUNTED else f"over {COUNTED}"


def _read_app(visit: Visit) -> dict[str, str]:
    return {"name": visit.read_field("name"), "bundleId": visit.read_field("bundleId")}
