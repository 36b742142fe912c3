"""`/ui/jobs/new`: a job from the choice of its app to its first message, on one page.

The form is sent to be previewed, and comes back with what was typed in it. Beside the preview stands what makes the
job: the same fields, and a key by which a form that is sent twice makes one job.
"""

import json
import secrets

from services.api.http.pages.apps import ShownApp, read_apps, require_app
from services.api.http.pages.filters import UNKNOWN
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_DEVICES, MANY_THINGS, check_name, refuse
from services.api.http.pages.visits import FORM_BYTES, Visit, address
from services.api.jobs.pages.job_form import (
    BY_ACCOUNT,
    blank_rows,
    count_reached,
    keep_typed,
    read_filters,
    read_job,
    read_names,
)
from services.api.jobs.pages.job_list import SECTION
from services.api.jobs.pages.templates import READ_AT_ONCE, group_by_name, message_of, notification_of, tags_in
from shared.domain.push.records import SERVICES

SHOWN_NAMES, SHOWN_ACCOUNTS = 60, 200
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
        preview = await visit.send("POST", "/apps/{}/jobs/preview", app_id, query=query, body=body)
        reached, messages = count_reached(preview), preview["messages"]
        by_account = "credential" in body
        samples = [(each, notification_of(each["record"])) for each in preview["samples"]]
        for each in messages["samples"] if messages else ():
            sample = {"templateName": query["template"], "record": each["content"], "failure": ""} | each
            samples.append((sample, message_of(each["content"])))
        return {
            "preview": preview,
            "reached": UNKNOWN if reached is None else reached,
            # An account's job is warned of nothing but what would stop it.
            "would_fail": not (preview["audience"] or messages) or (by_account and preview["warnings"]),
            "needs_name": reached is None or reached > (MANY_THINGS if by_account else MANY_DEVICES),
            "body": body,
            "samples": samples,
            "kept": list(keep_typed(visit)),
        }
