"""`/ui/bulk-actions`: one act on all that a filter matches: what it would do, in figures, and how far it is."""

import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from msgspec import Struct

from services.api.http.pages.html import number
from services.api.http.pages.namespaces import (
    EVERY,
    NamespaceChoice,
    read_apps,
    read_choice,
    read_names,
    tell_namespace,
)
from services.api.http.pages.routes import (
    MANY_DEVICES,
    MANY_THINGS,
    FormRoute,
    Moved,
    NavSection,
    PageRoute,
    PageSet,
    Values,
    check_name,
)
from services.api.http.pages.visits import ApiProblem, Visit, address
from services.api.jobs.pages.job_list import STATES as JOB_STATES

_ACTIONS = "/bulk-actions"
_ONE = "/bulk-actions/{action_id:str}"
_NEW = "/bulk-actions/new"
_DIED_MEANWHILE = 50
_DIGITS = 15
_COUNTED = 1_000_000


class ActWords(Struct, frozen=True):
    label: str
    does: str
    is_final: bool = False


ACTS = {
    "dead-letter.retry": ActWords(
        "Retry dead letters",
        "retries {}. A retry uses the current definition of its schedule. Letters of deleted schedules stay.",
    ),
    "dead-letter.discard": ActWords(
        "Discard dead letters", "discards {}. Nothing is called. This cannot be undone.", is_final=True
    ),
    "schedule.pause": ActWords("Pause schedules", "pauses {}. Nothing fires until you resume."),
    "schedule.resume": ActWords(
        "Resume schedules",
        "resumes {}. Each schedule handles what came due in the meantime by its own rule for late occurrences.",
    ),
    "schedule.delete": ActWords(
        "Delete schedules", "deletes {}, with everything pending. This cannot be undone.", is_final=True
    ),
    "job.pause": ActWords("Pause jobs", "pauses {}. Nothing is sent until you resume."),
    "job.resume": ActWords("Resume jobs", "resumes {}. A job goes on where it stopped."),
    "job.stop": ActWords("Stop jobs", "stops {} for good. This cannot be undone.", is_final=True),
}
_FIELDS = {
    "dead-letter": ("namespace", "key", "error"),
    "schedule": ("namespace", "prefix", "state", "label"),
    "job": ("app", "status", "template", "by"),
}
_JOB_WORDS = {str(state): word for state, word in JOB_STATES.items()}
_OPEN_STATES = ("scheduled", "running", "paused", "circuitbreak")
_WORDS = {
    "key": "of the schedule {}",
    "error": "with the error “{}”",
    "prefix": "with keys that begin with “{}”",
    "state": "that are {}",
    "label": "with the label {}",
    "app": "of the app {}",
    "status": "that are {}",
    "template": "of the template {}",
    "by": "created by {}",
}


class BulkActionPages(PageSet):
    section = NavSection("Bulk actions", _ACTIONS, order=210, is_seen=lambda _: False)

    @PageRoute(_ACTIONS, template="console/bulk-actions.html", refresh_seconds=5)
    async def show_actions(self, visit: Visit) -> Values:
        listed, names = await visit.read_all(visit.read_list("/bulk-actions"), read_names(visit))
        actions = [_describe(action, names) for action in listed.value]
        return {"title": "Bulk actions", "actions": actions, "next": listed.next}

    @PageRoute(_NEW, template="console/bulk-action-new.html")
    async def show_new(self, visit: Visit) -> Values:
        """The preview of an act over a filter. Without an act, the choice of acts."""
        act = _read(visit, "act")
        if act not in ACTS:
            return {"title": "New bulk action", "act": "", "acts": ACTS}
        kind = act.partition(".")[0]
        choice = await read_choice(visit, _read(visit, "filter.namespace") or visit.caller.namespace)
        apps = {app["id"]: app["name"] for app in await read_apps(visit)} if kind == "job" else {}
        filter = {name: _read(visit, f"filter.{name}") for name in _FIELDS[kind]}
        if "namespace" in filter:
            filter["namespace"] = choice.chosen
        figures, wrong = await _try(visit, act, filter)
        return {
            "title": ACTS[act].label,
            "act": act,
            "acts": {word: words for word, words in ACTS.items() if word.startswith(f"{kind}.")},
            "kind": kind,
            "choice": choice,
            "apps": apps,
            "job_words": {state: _JOB_WORDS[state] for state in _OPEN_STATES},
            "filter": filter,
            "figures": figures,
            "says": _tell_figures(act, figures) if figures else "",
            "wrong": wrong,
            "name": _name_to_type(figures, filter, choice, apps) if figures else "",
            "key": secrets.token_hex(16),
        }

    @FormRoute(_NEW, page="show_new")
    async def begin_action(self, visit: Visit) -> Moved:
        """Start it. If more things match than in the preview, the API refuses, and the page shows the new figure."""
        shown = await self.show_new(visit)
        if shown.get("wrong"):
            raise shown["wrong"]
        check_name(visit.form, shown.get("name", ""))
        matched = visit.read_field("matched")
        most = int(matched) if matched.isascii() and matched.isdigit() and len(matched) <= _DIGITS else 0
        if shown.get("kind") == "dead-letter":
            most += max(_DIED_MEANWHILE, most // 10)  # they go on dying while somebody reads and types
        body = _body(shown["act"], shown.get("filter", {}), visit.read_field("reason")) | {"atMost": most}
        made = await visit.send("POST", "/bulk-actions", body=body)
        return Moved(address("/bulk-actions/{}", made["id"]), "begun")

    @PageRoute(_ONE, template="console/bulk-action.html", refresh_seconds=2)
    async def show_action(self, visit: Visit) -> Values:
        read = visit.read("/bulk-actions/{}", visit.path("action_id"))
        action, names = await visit.read_all(read, read_names(visit))
        return {"title": ACTS[action["act"]].label, "action": _describe(action, names)}

    @FormRoute(_ONE + "/cancel", page="show_action")
    async def cancel_action(self, visit: Visit) -> Moved:
        action_id = visit.path("action_id")
        await visit.send("POST", "/bulk-actions/{}/cancel", action_id)
        return Moved(address("/bulk-actions/{}", action_id), "cancelled")


def _read(visit: Visit, name: str) -> str:
    """The typed value, else that of the address. Fields of the filter have a prefix, because the form's own `key` is
    its idempotency key."""
    return visit.read_field(name) or visit.query(name.removeprefix("filter.")).replace("\r\n", "\n")


async def _try(visit: Visit, act: str, filter: Mapping[str, str]) -> tuple[Any, ApiProblem | None]:
    """The figures of a dry run, or the mistake; neither before anything is chosen."""
    if not any(filter.values()):
        return None, None
    body = _body(act, filter, "figures")
    try:
        return await visit.send("POST", "/bulk-actions", query={"dryRun": True}, body=body), None
    except ApiProblem as problem:
        if problem.status not in {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN}:
            raise
        return None, problem


def _body(act: str, filter: Mapping[str, str], reason: str) -> dict[str, Any]:
    return {"act": act, "filter": {name: value for name, value in filter.items() if value}, "reason": reason}


def _name_to_type(
    figures: Mapping[str, Any], filter: Mapping[str, str], choice: NamespaceChoice, apps: Mapping[str, str]
) -> str:
    if figures["matched"] <= MANY_THINGS and (figures["devicesNotReached"] or 0) <= MANY_DEVICES:
        return ""
    named = next((filter[name] for name in ("key", "prefix", "template", "by") if filter.get(name)), "")
    app, namespace = filter.get("app", ""), filter.get("namespace", "")
    return named or (apps.get(app, app) if app else choice.tell(namespace) if namespace else EVERY)


def _describe(action: Mapping[str, Any], names: Mapping[str, str]) -> Values:
    looked_at = action["done"] + action["skipped"] + action["failed"]
    return {
        **action,
        "label": ACTS[action["act"]].label,
        "things": _name_things(action["act"]),
        "filter_words": tell_filter(action["filter"], names),
        "looked_at": looked_at,
        "whole": max(action["matched"], looked_at, 1),
    }


def _name_things(act: str, count: int = 0) -> str:
    return act.partition(".")[0].replace("-", " ") + ("" if count == 1 else "s")


def _tell_figures(act: str, figures: Mapping[str, Any]) -> str:
    matched, devices, unplanned = figures["matched"], figures["devicesNotReached"], figures["unplanned"]
    count = f"{number(matched)} or more" if matched >= _COUNTED else number(matched)
    told = f"This {ACTS[act].does.format(f'{count} {_name_things(act, matched)}')}"
    if devices is None:
        return told
    beside = f" {number(unplanned)} jobs are not planned yet: their devices are not counted." if unplanned else ""
    return f"{told} {number(devices)} devices would get nothing.{beside}"


def tell_filter(filter: Mapping[str, str], names: Mapping[str, str]) -> str:
    shown = {**filter, "status": _JOB_WORDS.get(filter.get("status", ""), "")}
    parts = [words.format(shown[name]) for name, words in _WORDS.items() if shown.get(name)]
    namespace = filter.get("namespace")
    return ", ".join([f"of {tell_namespace(namespace, names)}", *parts] if namespace else parts)
