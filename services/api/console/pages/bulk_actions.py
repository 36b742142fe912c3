"""`/ui/bulk-actions`: one act on all that a filter matches: what it would do, in figures, and how far it is."""

import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from services.api.console.pages.bulk_words import ACTS, FIELDS, JOB_WORDS, STATES, tell_figures, tell_filter
from services.api.http.pages.apps import read_apps
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.namespaces import EVERY, NamespaceChoice, read_choice, read_names
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_DEVICES, MANY_THINGS, check_name
from services.api.http.pages.visits import Visit, address

ACTIONS = "/bulk-actions"
_ONE = "/bulk-actions/{action_id:str}"
_NEW = "/bulk-actions/new"
_DIED_MEANWHILE = 50
_DIGITS = 15
_REFUSED = frozenset({HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN})


class BulkActionPages(PageSet):
    """Bulk actions: all, one, and one that is to be made."""

    section = NavSection("Bulk actions", ACTIONS, order=210)

    @PageRoute(ACTIONS, template="console/bulk-actions.html", refresh_seconds=5)
    async def show_actions(self, visit: Visit) -> Values:
        listed, names = await visit.read_all(visit.read_list("/bulk-actions"), read_names(visit))
        return {
            "title": "Bulk actions",
            "actions": [_describe(action, names) for action in listed.value],
            "next": listed.next,
            "acts": ACTS,
        }

    @PageRoute(_NEW, template="console/bulk-action-new.html")
    async def show_new(self, visit: Visit) -> Values:
        """The preview of an act over a filter. Without an act, the choice of acts."""
        act = _read(visit, "act")
        if act not in ACTS:
            return {"title": "New bulk action", "act": "", "acts": ACTS}
        kind = act.partition(".")[0]
        choice, apps = await visit.read_all(
            read_choice(visit, _read(visit, "filter.namespace") or visit.caller.namespace), _read_apps(visit, kind)
        )
        filter = _read_filter(visit, kind, choice)
        figures, wrong = await _try(visit, act, filter)
        name = _name_to_type(figures, filter, choice, apps) if figures else ""
        return {
            "title": ACTS[act].label,
            "act": act,
            "acts": {word: words for word, words in ACTS.items() if word.startswith(f"{kind}.")},
            "kind": kind,
            "choice": choice,
            "apps": apps,
            "states": STATES,
            "job_words": JOB_WORDS,
            "filter": filter,
            "figures": figures,
            "says": tell_figures(act, figures) if figures else "",
            "wrong": wrong,
            "name": name,
            "key": secrets.token_hex(16),
        }

    @FormRoute(_NEW, page="show_new")
    async def begin_action(self, visit: Visit) -> Moved:
        """Start it. If more things match than in the preview, the API refuses, and the page shows the new figure."""
        act = _read(visit, "act")
        filter = {name: visit.read_field(f"filter.{name}") for name in FIELDS.get(act.partition(".")[0], ())}
        await _check_typed_name(visit, act, filter)
        most = _most(act, _number(visit.read_field("matched")))
        body = _body(act, filter, visit.read_field("reason")) | {"atMost": most}
        made = await visit.send("POST", "/bulk-actions", body=body)
        return Moved(address("/bulk-actions/{}", made["id"]), "begun")

    @PageRoute(_ONE, template="console/bulk-action.html", refresh_seconds=2)
    async def show_action(self, visit: Visit) -> Values:
        """One of them, and how far it is."""
        read = visit.read("/bulk-actions/{}", visit.path("action_id"))
        action, names = await visit.read_all(read, read_names(visit))
        return {"title": ACTS[action["act"]].label, "action": _describe(action, names)}

    @FormRoute(_ONE + "/cancel", page="show_action")
    async def cancel_action(self, visit: Visit) -> Moved:
        """Leave what is not done yet."""
        action_id = visit.path("action_id")
        await visit.send("POST", "/bulk-actions/{}/cancel", action_id)
        return Moved(address("/bulk-actions/{}", action_id), "cancelled")


def _read(visit: Visit, name: str) -> str:
    """The typed value, else that of the address. Fields of the filter have a prefix, because the form's own `key` is
    its idempotency key."""
    return visit.read_field(name) or visit.query(name.removeprefix("filter.")).replace("\r\n", "\n")


def _read_filter(visit: Visit, kind: str, choice: NamespaceChoice) -> dict[str, str]:
    filter = {name: _read(visit, f"filter.{name}") for name in FIELDS[kind]}
    if "namespace" in filter:
        filter["namespace"] = choice.chosen
    return filter


async def _read_apps(visit: Visit, kind: str) -> dict[str, str]:
    """The names of apps by their ids, where the things are jobs."""
    if kind != "job":
        return {}
    return {app["id"]: app["name"] for app in await read_apps(visit)}


async def _try(visit: Visit, act: str, filter: Mapping[str, str]) -> tuple[Any, ApiProblem | None]:
    """The figures of a dry run; what is wrong, where there are none; neither before anything is chosen."""
    if not any(filter.values()):
        return None, None
    try:
        return await visit.send(
            "POST", "/bulk-actions", query={"dryRun": True}, body=_body(act, filter, "figures")
        ), None
    except ApiProblem as problem:
        if problem.status not in _REFUSED:
            raise
        return None, problem


async def _check_typed_name(visit: Visit, act: str, filter: Mapping[str, str]) -> None:
    """Raise `ApiProblem` where so much matches now that a name has to be typed, and was not."""
    figures, wrong = await _try(visit, act, filter)
    if wrong:
        raise wrong
    if figures is None or not _is_much(figures):
        return
    own = visit.caller.namespace
    named = {name: value or own if name == "namespace" else value for name, value in filter.items()}
    choice, apps = await visit.read_all(
        read_choice(visit, named.get("namespace", own)), _read_apps(visit, act.partition(".")[0])
    )
    check_name(visit.form, _name_to_type(figures, named, choice, apps))


def _most(act: str, seen: int) -> int:
    """How many may match where so many were seen. Letters go on dying while somebody reads and types."""
    return seen + max(_DIED_MEANWHILE, seen // 10) if act.startswith("dead-letter.") else seen


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0


def _body(act: str, filter: Mapping[str, str], reason: str) -> dict[str, Any]:
    return {"act": act, "filter": {name: value for name, value in filter.items() if value}, "reason": reason}


def _is_much(figures: Mapping[str, Any]) -> bool:
    return bool(figures["matched"] > MANY_THINGS) or (figures["devicesNotReached"] or 0) > MANY_DEVICES


def _name_to_type(
    figures: Mapping[str, Any], filter: Mapping[str, str], choice: NamespaceChoice, apps: Mapping[str, str]
) -> str:
    """The word that confirms a large action; `""` for a small one."""
    if not _is_much(figures):
        return ""
    named = next((filter[name] for name in ("key", "prefix", "template", "by") if filter.get(name)), "")
    app, namespace = filter.get("app", ""), filter.get("namespace", "")
    return named or (apps.get(app, app) if app else choice.tell(namespace) if namespace else EVERY)


def _describe(action: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    looked_at = action["done"] + action["skipped"] + action["failed"]
    return {
        **action,
        "label": ACTS[action["act"]].label,
        "things": ACTS[action["act"]].many,
        "filter_words": tell_filter(action["filter"], names),
        "looked_at": looked_at,
        "whole": max(action["matched"], looked_at, 1),
    }
