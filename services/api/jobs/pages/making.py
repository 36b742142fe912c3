"""`/ui/jobs/new`: a job from the choice of its app to its first message, on one page.

The form is read as the API's body has it, so that a refusal is told beside its field.
"""

import json
import secrets
from collections.abc import Iterable
from typing import Any

import msgspec

from services.api.http.pages.html import UNKNOWN, in_zone, query_of
from services.api.http.pages.namespaces import ShownApp, read_apps, require_app
from services.api.http.pages.routes import (
    EMPTY_OBJECT,
    MANY_DEVICES,
    MANY_THINGS,
    FormRoute,
    Moved,
    PageRoute,
    PageSet,
    Values,
    check_name,
    read_instant,
    read_json,
    read_number,
    read_object,
    read_whole,
    refuse,
)
from services.api.http.pages.visits import FORM_BYTES, ApiProblem, Visit, address
from services.api.jobs.pages.job_list import SECTION
from services.api.jobs.pages.templates import READ_AT_ONCE, group_by_name, message_of, notification_of, tags_in
from shared.core.instants import ns
from shared.push.rules.records import SERVICES

NOW, AT, LOCALIZED, REPEAT = "now", "at", "localized", "repeat"
BY_ACCOUNT = "credential"
FILTER, WANTED = "filter-column", "filter-value"
BLANK_ROWS = 2
_OWN = {"named", "key"}
_DRY_RUN = "dryRun"
_DATA = "callback.data."
_PAYLOAD = f"{_DATA}payload."
_COUNTS = (("audience", "devices", "estimatedDevices"), ("messages", "recipients", "estimatedRecipients"))
_ACCOUNT_TEXTS = (
    "credential", "recipientColumn", "list", "locale", "defaultRegion", "duplicates", "onUnknown",
)  # fmt: skip
Filters = list[tuple[str, str]]


def read_names(visit: Visit) -> str:
    """The names of the chosen templates, as the API takes them. Raises `ApiProblem` for none, and for one that a job
    cannot name."""
    names = [*visit.lists.get("template", ()), *visit.read_field("templates").split(",")]
    chosen = [name for name in dict.fromkeys(names) if name]
    if not chosen:
        raise refuse("template", "choose at least one template")
    if any("," in name for name in visit.lists.get("template", ())):
        raise refuse("template", "a template with a comma in its name cannot be sent")
    return ",".join(chosen)


def read_filters(visit: Visit) -> Filters:
    rows = zip(visit.lists.get(FILTER, ()), visit.lists.get(WANTED, ()), strict=False)
    stripped = ((column.strip(), value.strip()) for column, value in rows)
    return [(column, value) for column, value in stripped if column or value]


def blank_rows(filters: Filters) -> Filters:
    return filters + [("", "")] * max(BLANK_ROWS, 3 - len(filters))


def read_job(visit: Visit) -> dict[str, Any]:
    """The body of the job. Raises `ApiProblem` for the first field that cannot be read."""
    when = visit.read_field("when") or NOW
    if when == REPEAT and (visit.read_field("startsAt") or visit.read_field("expiresAt")):
        field = "startsAt" if visit.read_field("startsAt") else "expiresAt"
        raise refuse(field, "leave it empty: each job of a schedule starts when it is due, and has no fixed end")
    body = _read_sender(visit) | {
        "name": visit.read_field("name"),
        "filters": _read_columns(visit),
        "csvPath": visit.read_field("csvPath"),
        "context": read_object(visit.form, "context") or EMPTY_OBJECT,
        "metadata": _read_metadata(visit),
        "startsAt": 0 if when in {NOW, REPEAT} else _read_ns(visit, "startsAt"),
        "localized": when == LOCALIZED,
        "pastTimeStrategy": visit.read_field("pastTimeStrategy") if when == LOCALIZED else "",
        "expiresAt": _read_ns(visit, "expiresAt"),
    }
    if when not in {NOW, REPEAT} and not body["startsAt"]:
        raise refuse("startsAt", "type the time of the start")
    return body


def read_schedule(visit: Visit) -> dict[str, Any] | None:
    """The body of the schedule that starts the job again and again; `None` for one job. Raises as `read_job`."""
    if visit.read_field("when") != REPEAT:
        return None
    payload = {name: value for name, value in read_job(visit).items() if value not in ("", 0, {}, EMPTY_OBJECT)}
    data = {"app_id": visit.read_field("app"), "template": read_names(visit), "payload": payload}
    return {
        "key": visit.read_field("scheduleKey"),
        "cron": visit.read_field("cron"),
        "timezone": visit.read_field("timezone") or "UTC",
        "callback": {"type": "job", "data": data | {"overlap": visit.read_field("overlap") or "skip"}},
    }


async def _send_schedule(visit: Visit, path: str, schedule: dict[str, Any]) -> Any:
    """The answer to the schedule. A problem names the field of this form."""
    try:
        return await visit.send("POST", path, body=schedule)
    except ApiProblem as problem:
        field = "scheduleKey" if problem.field == "key" else problem.field.removeprefix(_PAYLOAD).removeprefix(_DATA)
        raise ApiProblem(problem.status, problem.detail, field) from problem


def keep_typed(visit: Visit) -> Iterable[tuple[str, str]]:
    for name, values in visit.lists.items():
        if name not in _OWN:
            yield from ((name, value) for value in values)


def count_reached(preview: dict[str, Any]) -> int | None:
    """The estimated devices of a push, or recipients of an account's job; `None` if unknown."""
    for part, things, estimate in _COUNTS:
        if counted := preview[part]:
            reached: int | None = counted[things if counted["exact"] else estimate]
            return reached
    return None


def _read_sender(visit: Visit) -> dict[str, Any]:
    """The sender and its fields. Fields of the other kind of sender are left out."""
    if visit.read_field("sender") != BY_ACCOUNT:
        return {"service": visit.read_field("service"), "controlGroup": _read_share(visit)}
    given: dict[str, Any] = {name: visit.read_field(name) for name in _ACCOUNT_TEXTS}
    if not given["credential"]:
        raise refuse("credential", "choose an account")
    given |= {"share": read_number(visit.form, "share"), "maxRecipients": read_whole(visit.form, "maxRecipients")}
    given |= {"haltOn": read_json(visit.form, "haltOn"), "transactional": bool(visit.read_field("transactional"))}
    return {name: value for name, value in given.items() if value not in (None, "")}


def _read_columns(visit: Visit) -> dict[str, str]:
    columns: dict[str, str] = {}
    for column, value in read_filters(visit):
        if not column:
            raise refuse("filters", f"name the column of {value!r}")
        if column in columns:
            raise refuse("filters", f"{column} has two rows: write its values in one row, separated by commas")
        columns[column] = value
    return columns


def _read_metadata(visit: Visit) -> msgspec.Raw:
    metadata = read_object(visit.form, "metadata") or EMPTY_OBJECT
    if not visit.read_field(_DRY_RUN):
        return metadata
    if json.loads(bytes(metadata)).get(_DRY_RUN) is True:
        return metadata
    # Put in as text: the API refuses what is wrong in the rest.
    rest = bytes(metadata).removeprefix(b"{").lstrip()
    return msgspec.Raw(b'{"%s": true%s' % (_DRY_RUN.encode(), rest if rest == b"}" else b", " + rest))


def _read_ns(visit: Visit, field: str) -> int:
    at = read_instant(visit.form, field)
    return ns(at) if at else 0


def _read_share(visit: Visit) -> float:
    percent = read_number({"controlGroup": visit.read_field("controlGroup").removesuffix("%")}, "controlGroup") or 0
    if not 0 <= percent < 100:
        raise refuse("controlGroup", "it must be at least 0 and less than 100")
    return percent / 100


SHOWN_NAMES, SHOWN_ACCOUNTS = 60, 200
_SHOWN_DUE = 3
_PAGE = "show_form"


class JobMakingPages(PageSet):
    section = SECTION

    @PageRoute("/jobs/new", template="jobs/making.html")
    async def show_form(self, visit: Visit) -> Values:
        app_id = visit.form.get("app") or visit.query("app")
        apps = await read_apps(visit, "operator")
        app = await require_app(visit, app_id) if app_id else apps[0] if len(apps) == 1 else None
        values = {"title": "New job", "apps": apps, "app": app, "preview": None}
        return values if app is None else values | await self._read_choices(visit, app)

    @FormRoute("/jobs/new/preview", page=_PAGE)
    async def preview_job(self, visit: Visit) -> Values:
        """The audience and the texts of the job, after the chosen file has been uploaded."""
        await self._bring_file(visit)
        return await self._foresee(visit) | {"key": secrets.token_urlsafe(16)}

    @FormRoute("/jobs/new", page=_PAGE)
    async def make_job(self, visit: Visit) -> Values | Moved:
        app = await require_app(visit, visit.read_field("app"))
        foreseen = await self._foresee(visit)
        try:
            check_name(visit.form, app["name"] if foreseen["needs_name"] else "")
        except ApiProblem as problem:
            return foreseen | {"key": visit.form.get("key", ""), "problem": problem}
        if schedule := read_schedule(visit):
            made = await _send_schedule(visit, "/schedules", schedule)
            return Moved(address("/schedules/{}", made["key"]) + query_of(namespace=visit.caller.namespace), "made")
        query = {"template": read_names(visit)}
        job = await visit.send("POST", "/apps/{}/jobs", app["id"], query=query, body=read_job(visit))
        if job["localized"]:
            return Moved(address("/groups/{}/{}", app["id"], job["jobGroupId"]), "made")
        return Moved(address("/jobs/{}/{}", app["id"], job["id"]), "made")

    async def _read_choices(self, visit: Visit, app: ShownApp) -> Values:
        answer = await visit.read_list("/apps/{}/templates", app["id"], limit=READ_AT_ONCE, cursor="")
        read = visit.read_list("/apps/{}/credentials", app["id"], limit=SHOWN_ACCOUNTS, cursor="")
        found = await visit.attempt("Provider accounts", read)
        accounts = found.value if found else []
        account = visit.read_field("credential") or visit.query("credential")
        named = [each for each in group_by_name(answer.value) if "," not in each["name"]]
        sendable = [each for each in named if each["has_english"] or accounts]
        chosen = visit.lists.get("template") or [name for name in [visit.query("template")] if name]
        chosen += [name for name in visit.read_field("templates").split(",") if name]
        tags = [tag for item in answer.value if item["name"] in chosen for tag in tags_in(item["body"])]
        listed = sorted(sendable, key=lambda named: named["name"] not in chosen)[:SHOWN_NAMES]
        return {
            "names": listed,
            "has_more_names": bool(answer.next) or len(listed) < len(sendable),
            "chosen": chosen,
            "values_hint": json.dumps({tags[0]: "a value"} if tags else {"user": "Ana"}, ensure_ascii=False),
            "others": ",".join(name for name in chosen if name not in {named["name"] for named in listed}),
            "services": list(SERVICES),
            "accounts": accounts,
            "has_more_accounts": bool(found and found.next),
            "account": account,
            "by_account": visit.form.get("sender", BY_ACCOUNT if account else "") == BY_ACCOUNT,
            "filters": blank_rows(read_filters(visit)),
            "file_bytes": FORM_BYTES,
        }

    async def _bring_file(self, visit: Visit) -> None:
        content = visit.files.get("file")
        if content is None:
            return
        if not content:
            raise refuse("file", "the file is empty: choose one with a header and a line for each recipient, or none")
        app_id = visit.read_field("app")
        part = await visit.send("PUT", "/apps/{}/uploads", app_id, query={"part": 1}, body=content)
        upload = await visit.send(
            "POST", "/apps/{}/uploads/{}/complete", app_id, part["uploadId"], body={"bytes": len(content)}
        )
        visit.form["csvPath"] = upload["csvPath"]
        visit.lists["csvPath"] = [upload["csvPath"]]

    async def _foresee(self, visit: Visit) -> Values:
        query, body = {"template": read_names(visit)}, read_job(visit)
        app_id = visit.read_field("app")
        schedule = read_schedule(visit)
        due = None if schedule is None else await _send_schedule(visit, "/schedules/preview", schedule)
        preview = await visit.send("POST", "/apps/{}/jobs/preview", app_id, query=query, body=body)
        reached, messages = count_reached(preview), preview["messages"]
        by_account = "credential" in body
        samples = [(each, notification_of(each["record"])) for each in preview["samples"]]
        for each in messages["samples"] if messages else ():
            sample = {"templateName": query["template"], "record": each["content"], "failure": ""} | each
            samples.append((sample, message_of(each["content"])))
        return {
            "preview": preview,
            "schedule": schedule,
            "due": in_zone(due["next"][:_SHOWN_DUE], schedule["timezone"]) if schedule and due else [],
            "reached": UNKNOWN if reached is None else reached,
            # An account's job is warned of nothing but what would stop it.
            "would_fail": not (preview["audience"] or messages) or (by_account and preview["warnings"]),
            "needs_name": reached is None or reached > (MANY_THINGS if by_account else MANY_DEVICES),
            "body": body,
            "samples": samples,
            "kept": list(keep_typed(visit)),
        }
