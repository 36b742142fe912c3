"""Forms that create or change an account, replace its secret, or send one message. No page contains a typed secret."""

import uuid
from typing import Any

from services.api.http.pages.apps import require_app
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import read_lines, read_number, read_object, refuse
from services.api.http.pages.visits import Visit, address
from services.api.messages.pages.accounts import SECTION
from services.api.messages.pages.kinds import KINDS, KindForm, read_kind_fields, read_secret, show_kind_value

_ACCOUNT = "/apps/{}/credentials/{}"
_NEW = "/messages/{app_id:str}/credentials/new"
_CHANGE = "/messages/{app_id:str}/credentials/{credential_id:str}/change"
_SECRET = "/messages/{app_id:str}/credentials/{credential_id:str}/secret"
_SEND = "/messages/{app_id:str}/send"
_NAMES_SHOWN = 200
_RETRY = ("attempts", "firstDelaySeconds", "factor", "capSeconds")


class AccountFormPages(PageSet):
    """Forms over accounts."""

    section = SECTION

    @PageRoute(_NEW, template="messages/new.html")
    async def show_new_account(self, visit: Visit) -> Values:
        """A new account: first its kind, then the fields of that kind."""
        app = await require_app(visit, visit.path("app_id"), "admin")
        kind = KINDS.get(visit.read_field("kind") or visit.query("kind"))
        return {
            "title": "New account",
            "app": app,
            "kinds": KINDS.values(),
            "kind": kind,
            "fields": {},
            "key": visit.read_field("key") or str(uuid.uuid4()),
        }

    @FormRoute(_NEW, page="show_new_account")
    async def create_account(self, visit: Visit) -> Moved:
        """Make it: a test message goes first."""
        app_id, kind = visit.path("app_id"), _require_kind(visit.read_field("kind"))
        body = _read_settings(visit) | {
            "kind": kind.name,
            "fields": read_kind_fields(visit, kind.fields),
            "secret": read_secret(visit, kind.secret),
        }
        made = await visit.send("POST", "/apps/{}/credentials", app_id, body=body)
        return Moved(address("/messages/{}/credentials/{}", app_id, made["id"]), "made")

    @PageRoute(_CHANGE, template="messages/change.html")
    async def show_account_change(self, visit: Visit) -> Values:
        app, account = await require_app(visit, visit.path("app_id"), "admin"), await _read_account(visit)
        return {"title": f"Change {account['name']}", "app": app, "account": account, "kind": KINDS[account["kind"]]}

    @FormRoute(_CHANGE, page="show_account_change")
    async def change_account(self, visit: Visit) -> Moved:
        await visit.send("PUT", _ACCOUNT, *_ids(visit), body=_read_settings(visit))
        return Moved(address("/messages/{}/credentials/{}", *_ids(visit)), "saved")

    @PageRoute(_SECRET, template="messages/secret.html")
    async def show_secret_form(self, visit: Visit) -> Values:
        """Another secret for an account, and the fields that go with it."""
        app, account = await require_app(visit, visit.path("app_id"), "admin"), await _read_account(visit)
        kind = KINDS[account["kind"]]
        fields = {field.name: show_kind_value(account["fields"].get(field.name)) for field in kind.fields}
        return {"title": f"Secret of {account['name']}", "app": app, "account": account, "kind": kind, "fields": fields}

    @FormRoute(_SECRET, page="show_secret_form")
    async def replace_secret(self, visit: Visit) -> Moved:
        """Replace it: a test message goes first."""
        kind = KINDS[(await _read_account(visit))["kind"]]
        body = {"secret": read_secret(visit, kind.secret), "fields": read_kind_fields(visit, kind.fields)}
        await visit.send("PUT", f"{_ACCOUNT}/secret", *_ids(visit), body=body)
        return Moved(address("/messages/{}/credentials/{}", *_ids(visit)), "secret-replaced")


class SendPages(PageSet):
    """A form that sends one message."""

    section = SECTION

    @PageRoute(_SEND, template="messages/send.html")
    async def show_send_form(self, visit: Visit) -> Values:
        app_id = visit.path("app_id")
        app, accounts, templates = await visit.read_all(
            require_app(visit, app_id),
            visit.read_list("/apps/{}/credentials", app_id, limit=_NAMES_SHOWN, cursor=""),
            visit.read_list("/apps/{}/templates", app_id, limit=_NAMES_SHOWN, cursor=""),
        )
        return {
            "title": "Send one message",
            "app": app,
            "accounts": accounts.value,
            "has_more_accounts": bool(accounts.next),
            "templates": sorted({template["name"] for template in templates.value}),
            "has_more_templates": bool(templates.next),
            "chosen": visit.read_field("credential") or visit.query("credential"),
            "key": visit.read_field("key") or str(uuid.uuid4()),
        }

    @FormRoute(_SEND, page="show_send_form")
    async def send_message(self, visit: Visit) -> Moved:
        given = {
            "credential": visit.read_field("credential"),
            "to": visit.read_field("to"),
            "template": visit.read_field("template"),
            "body": read_object(visit.form, "body"),
            "locale": visit.read_field("locale"),
            "parameters": read_object(visit.form, "parameters"),
            "list": visit.read_field("list"),
            "transactional": bool(visit.read_field("transactional")),
        }
        body = {name: value for name, value in given.items() if value not in (None, "", {})}
        message = await visit.send("POST", "/apps/{}/messages", visit.path("app_id"), body=body)
        return Moved(address("/messages/{}/messages/{}", visit.path("app_id"), message["id"]), "sent")


def _read_settings(visit: Visit) -> dict[str, Any]:
    """The settings of every kind without empty fields. Raises `ApiProblem`."""
    retry = {name: read_number(visit.form, f"retry.{name}") for name in _RETRY}
    given: dict[str, Any] = {
        "name": visit.read_field("name"),
        "rate": read_number(visit.form, "rate"),
        "maxInFlight": read_number(visit.form, "maxInFlight"),
        "order": visit.read_field("order"),
        "onUnknown": visit.read_field("onUnknown"),
        "retry": {name: value for name, value in retry.items() if value is not None},
        "testRecipient": visit.read_field("testRecipient"),
        "testContent": read_object(visit.form, "testContent"),
    }
    settings = {name: value for name, value in given.items() if value not in (None, "", {})}
    if "testContent" in visit.form and not given["testContent"]:
        settings["testContent"] = {}
    if visit.caller.is_admin and "sharedWith" in visit.form:
        settings["sharedWith"] = read_lines(visit.form, "sharedWith")
    return settings | {"testRecipient": given["testRecipient"], "name": given["name"]}


async def _read_account(visit: Visit) -> Any:
    """The account, if it is the app's own. Raises `ApiProblem`."""
    account = await visit.read(_ACCOUNT, *_ids(visit))
    if account["appId"] != visit.path("app_id"):
        raise ApiProblem(403, "another app shares this account: whoever runs that one changes it")
    return account


def _require_kind(name: str) -> KindForm:
    if name not in KINDS:
        raise refuse("kind", "choose a kind first")
    return KINDS[name]


def _ids(visit: Visit) -> tuple[str, str]:
    return visit.path("app_id"), visit.path("credential_id")
