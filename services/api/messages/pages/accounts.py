"""`/ui/messages`: the provider accounts, one account, and the forms that make and change one, by kind of provider."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from services.api.http.pages.html import things
from services.api.http.pages.namespaces import choose_app, read_apps, require_app
from services.api.http.pages.routes import (
    Form,
    FormRoute,
    Moved,
    NavSection,
    PageRoute,
    PageSet,
    Values,
    check_name,
    name_if_many,
    read_lines,
    read_number,
    read_object,
    read_pairs,
    read_whole,
    refuse,
)
from services.api.http.pages.visits import ApiProblem, Visit, address
from shared.messages.rules.answers import Channel


class KindField(Struct, frozen=True):
    """A field of a kind, or a part of its secret. `name` is the API's. `shape` says how it is typed: as a line, whole
    number, flag or choice, as several lines, as pairs `name: value` on a line each, or as a long text."""

    name: str
    label: str
    hint: str = ""
    shape: str = "line"
    needed: bool = False
    choices: tuple[tuple[str, str], ...] = ()


class KindForm(Struct, frozen=True):
    """A kind of account: what people call it, what its recipients are, and what it asks for."""

    name: str
    label: str
    channel: Channel
    recipient: str
    says: str
    fields: tuple[KindField, ...] = ()
    secret: tuple[KindField, ...] = ()


_TLS = tuple((choice, choice) for choice in ("required", "implicit", "offered", "never"))
_MAIL_ADDRESS = "a mail address"
_API_URL = KindField("apiUrl", "API URL", "For another region, or a private endpoint.")
_FROM = KindField("from", "From", "The mailbox that mails come from.", needed=True)
_MAIL = (_FROM, KindField("fromName", "Sender name"), KindField("replyTo", "Reply to"))
_SMTP = (
    KindField("host", "Host", "smtp.example.com", needed=True),
    KindField("port", "Port", "Default: 587.", "number"),
    KindField("tls", "TLS", "Required is STARTTLS. Implicit is TLS from the first byte.", "choice", choices=_TLS),
    KindField("user", "User"),
    *_MAIL,
)
_SMTP_PASSWORD = KindField("password", "Password")
_SES = (
    *_SMTP,
    KindField("configurationSet", "Configuration set"),
    KindField("topicArns", "SNS topics", "One ARN per line: only their events count.", "lines"),
)
_SES_PASSWORD = KindField("password", "SMTP password", "Not the secret access key.")
_SENDGRID = (*_MAIL, _API_URL)
_SENDGRID_SECRET = (KindField("apiKey", "API key", needed=True), KindField("eventKey", "Public key of its events"))
_TWILIO = (
    KindField("accountSid", "Account SID", "AC and 32 digits.", needed=True),
    KindField("from", "From", "A number, a short code, a name or whatsapp:+…; or the next field."),
    KindField("messagingServiceSid", "Messaging service", "MG and 32 digits."),
    _API_URL,
)
_TWILIO_TOKEN = KindField("authToken", "Auth token", needed=True)
_APNS = (
    KindField("teamId", "Team id", needed=True),
    KindField("keyId", "Key id", needed=True),
    KindField("topic", "Topic", "The id of the app: com.example.app.", needed=True),
    KindField("sandbox", "Apple's sandbox", shape="flag"),
    KindField("pushType", "Push type", "alert, background, voip …"),
    KindField("priority", "Priority", "1, 5 or 10.", "number"),
    KindField("expirationSeconds", "Kept for", "Seconds at Apple.", "number"),
    _API_URL,
)
_APNS_KEY = KindField("key", "Key", "The text of the .p8 file.", "text", needed=True)
_FCM_KEY = KindField("serviceAccount", "Service account", "The text of its JSON file.", "text", needed=True)
_HTTP = (
    KindField("url", "URL", "https://messages.example.com/send", needed=True),
    KindField("headers", "Headers", "Name: value, one per line.", "pairs"),
    KindField("idempotencyHeader", "Idempotency header", "The header by which your server drops repeats."),
)
_HTTP_SECRET = (
    KindField("signingSecret", "Signing secret", "whsec_…", needed=True),
    KindField("oldSigningSecret", "Old signing secret", "While the new one replaces it."),
    KindField("authorization", "Authorization", "The value of this header."),
)
_ANY_TEXT = "any text that your server knows"
_TRIALS = "any text; +bounce, +slow and +lost in it choose the answer"
_PHONE = "a phone number with its country code"
_KINDS = (
    KindForm("smtp", "SMTP", Channel.MAIL, _MAIL_ADDRESS, "Mail by any server", _SMTP, (_SMTP_PASSWORD,)),
    KindForm("ses", "Amazon SES", Channel.MAIL, _MAIL_ADDRESS, "Mail by SMTP, with events", _SES, (_SES_PASSWORD,)),
    KindForm(
        "sendgrid", "SendGrid", Channel.MAIL, _MAIL_ADDRESS, "Mail by its API, with events", _SENDGRID, _SENDGRID_SECRET
    ),
    KindForm("twilio", "Twilio", Channel.SMS, _PHONE, "SMS and WhatsApp", _TWILIO, (_TWILIO_TOKEN,)),
    KindForm("apns", "APNs", Channel.PUSH, "a device token", "Pushes to Apple's devices", _APNS, (_APNS_KEY,)),
    KindForm("fcm", "FCM", Channel.PUSH, "a registration token", "Pushes by Firebase", (_API_URL,), (_FCM_KEY,)),
    KindForm("http", "HTTP", Channel.OTHER, _ANY_TEXT, "Your own server, called with JSON", _HTTP, _HTTP_SECRET),
    KindForm("sandbox", "Sandbox", Channel.OTHER, _TRIALS, "Sends nothing: for trials"),
)
KINDS: dict[str, KindForm] = {kind.name: kind for kind in _KINDS}
_READERS: dict[str, Callable[[Form, str], Any]] = {
    "number": read_whole,
    "flag": lambda form, name: name in form or None,
    "lines": read_lines,
    "pairs": read_pairs,
}


def read_kind_fields(visit: Visit, fields: tuple[KindField, ...]) -> dict[str, Any]:
    """The fields of a kind that were filled in, as the API takes them. Raises `ApiProblem`."""
    read = {field.name: _READERS.get(field.shape, _read_text)(visit.form, f"fields.{field.name}") for field in fields}
    return {name: value for name, value in read.items() if value not in (None, "", [], {})}


def _read_text(form: Form, name: str) -> str:
    return form.get(name, "").strip()


def read_secret(visit: Visit, parts: tuple[KindField, ...]) -> dict[str, str]:
    read = {part.name: visit.read_field(f"secret.{part.name}") for part in parts}
    return {name: text for name, text in read.items() if text}


def show_kind_value(value: Any) -> str:
    match value:
        case None | False:
            return ""
        case dict():
            return "\n".join(f"{name}: {text}" for name, text in value.items())
        case list():
            return "\n".join(str(line) for line in value)
        case _:
            return str(value)


ACCOUNTS_SHOWN = 6
"""How many accounts are live at once: each is a read of its own."""
JOBS_SHOWN = 10
SECTION = NavSection("Accounts", "/messages", order=30, group="Send", needs=("stopped-accounts",))
_SAID = {"suspend": "suspended", "activate": "activated", "test": "tested"}
_ACCOUNT = "/apps/{}/credentials/{}"
_PAGE = "/messages/{app_id:str}/credentials/{credential_id:str}"
_NEW = "/messages/{app_id:str}/credentials/new"
_SEND = "/messages/{app_id:str}/send"
_NAMES_SHOWN = 200
_RETRY = ("attempts", "firstDelaySeconds", "factor", "capSeconds")
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
    section = SECTION

    @PageRoute("/messages", template="messages/accounts.html", refresh_seconds=2, shared_by_roles=True)
    async def show_accounts(self, visit: Visit) -> Values:
        apps = await read_apps(visit)
        app = await choose_app(visit, apps)
        apps = apps if app is None or app in apps else [app, *apps]
        values = {"title": "Accounts", "apps": apps, "app": app, "accounts": [], "jobs": [], "next": ""}
        return values if app is None else values | await self._read_standing(visit, app["id"])

    @PageRoute(_PAGE, template="messages/account.html", refresh_seconds=2, shared_by_roles=True)
    async def show_account(self, visit: Visit) -> Values:
        app_id, credential_id = visit.parts
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
            "name": name_if_many(account["name"], account["queue"]["messages"]),
        }

    @FormRoute(_PAGE, acts=("suspend", "activate", "test"), page="show_account")
    async def move_account(self, visit: Visit) -> Moved:
        if visit.act == "suspend":
            account = await visit.read(_ACCOUNT, *visit.parts)
            check_name(visit.form, name_if_many(account["name"], account["queue"]["messages"]))
        await visit.send("POST", f"{_ACCOUNT}/{visit.act}", *visit.parts)
        return Moved(address("/messages/{}/credentials/{}", *visit.parts), _SAID[visit.act])

    @FormRoute(_PAGE + "/delete", page="show_account")
    async def delete_account(self, visit: Visit) -> Moved:
        await visit.send("DELETE", _ACCOUNT, *visit.parts)
        return Moved(f"/messages?app={address('{}', visit.path('app_id'))}", "deleted")

    @PageRoute(_NEW, template="messages/new.html")
    async def show_new_account(self, visit: Visit) -> Values:
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
        app_id, kind = visit.path("app_id"), KINDS.get(visit.read_field("kind"))
        if kind is None:
            raise refuse("kind", "choose a kind first")
        body = _read_settings(visit) | {
            "kind": kind.name,
            "fields": read_kind_fields(visit, kind.fields),
            "secret": read_secret(visit, kind.secret),
        }
        made = await visit.send("POST", "/apps/{}/credentials", app_id, body=body)
        return Moved(address("/messages/{}/credentials/{}", app_id, made["id"]), "made")

    @PageRoute(_PAGE + "/change", template="messages/change.html")
    async def show_account_change(self, visit: Visit) -> Values:
        app, account = await require_app(visit, visit.path("app_id"), "admin"), await _read_account(visit)
        return {"title": f"Change {account['name']}", "app": app, "account": account, "kind": KINDS[account["kind"]]}

    @FormRoute(_PAGE + "/change", page="show_account_change")
    async def change_account(self, visit: Visit) -> Moved:
        await visit.send("PUT", _ACCOUNT, *visit.parts, body=_read_settings(visit))
        return Moved(address("/messages/{}/credentials/{}", *visit.parts), "saved")

    @PageRoute(_PAGE + "/secret", template="messages/secret.html")
    async def show_secret_form(self, visit: Visit) -> Values:
        app, account = await require_app(visit, visit.path("app_id"), "admin"), await _read_account(visit)
        kind = KINDS[account["kind"]]
        fields = {field.name: show_kind_value(account["fields"].get(field.name)) for field in kind.fields}
        return {"title": f"Secret of {account['name']}", "app": app, "account": account, "kind": kind, "fields": fields}

    @FormRoute(_PAGE + "/secret", page="show_secret_form")
    async def replace_secret(self, visit: Visit) -> Moved:
        kind = KINDS[(await _read_account(visit))["kind"]]
        body = {"secret": read_secret(visit, kind.secret), "fields": read_kind_fields(visit, kind.fields)}
        await visit.send("PUT", f"{_ACCOUNT}/secret", *visit.parts, body=body)
        return Moved(address("/messages/{}/credentials/{}", *visit.parts), "secret-replaced")

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


def _read_settings(visit: Visit) -> dict[str, Any]:
    reads = {name: read_whole if name == "attempts" else read_number for name in _RETRY}
    retry = {name: read(visit.form, f"retry.{name}") for name, read in reads.items()}
    given: dict[str, Any] = {
        "name": visit.read_field("name"),
        "rate": read_number(visit.form, "rate"),
        "maxInFlight": read_whole(visit.form, "maxInFlight"),
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
    account = await visit.read(_ACCOUNT, *visit.parts)
    if account["appId"] != visit.path("app_id"):
        raise ApiProblem(403, "another app owns this account: change it in that app")
    return account


def _health_of(account: Account) -> str:
    if account["status"] != "active":
        return str(account["status"])
    if account["holdUntil"]:
        return "held"
    if account["effectiveRate"] < account["rate"]:
        return "slowed"
    return "sending" if _sendable(account) else "ready"


def _explain_bound(account: Account) -> str:
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
            return _explain_work(account)
        case _, bound:
            return _BOUNDS.get(bound or "", "")


def _explain_work(account: Account) -> str:
    if _sendable(account):
        return "Workers are fetching its messages."
    if held := account["queue"]["held"]:
        jobs = "Its job is" if account["queue"]["jobs"] == 1 else "Its jobs are"
        return f"{jobs} on hold: {things(held, 'message')} {'waits' if held == 1 else 'wait'}."
    return "Nothing is waiting."


async def _read_running(visit: Visit, app_id: str, jobs: Sequence[JobAnswer]) -> list[JobAnswer]:
    """The same jobs. The first running ones are read alone, because only that counts to the message."""
    asked = [job["id"] for job in jobs if job["state"] == _RUNNING][:_RUNNING_SHOWN]
    read = await visit.read_all(
        *(visit.try_read("The progress of a job", "/apps/{}/jobs/{}", app_id, job_id) for job_id in asked)
    )
    exact = {job["id"]: job for job in read if job is not None}
    return [exact.get(job["id"], job) for job in jobs]


def _allowed_of(account: Account) -> float:
    """The messages a second that an account may send now: none during a pause."""
    return 0 if account["holdUntil"] else float(account["effectiveRate"])


def _speed_of(account: Account, jobs: Sequence[JobAnswer]) -> float | None:
    """The messages a second: the allowed rate if nothing else bounds it, else the rate of running jobs in the last half
    minute, in whole batches; `None` if unknown."""
    if not _sendable(account) or not _allowed_of(account):
        return 0
    if account["limitedBy"] == _BY_RATE:
        return _allowed_of(account)
    running = [job for job in jobs if job.get("credentialId") == account["id"] and job["state"] == _RUNNING]
    are_known = all("messages" in job for job in running)
    return (sum(job["rate"] for job in running) or None) if are_known else None


def _sendable(account: Account) -> int:
    queue = account["queue"]
    return int(queue["messages"] - queue["held"])
