"""Making a subscription and changing one: a form, and the body that the API takes."""

from http import HTTPStatus

import msgspec

from services.api.bus.pages.bus import SECTION
from services.api.bus.pages.fields import read_condition
from services.api.bus.pages.subscription import show_secret
from services.api.bus.pages.whose import SUBSCRIPTION_PAGE, below, tell_whose
from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import read_lines, read_number, read_pairs, refuse
from services.api.http.pages.visits import Visit

_EDIT = "/bus/subscriptions/{key:str}/edit"
_SUBSCRIPTION = "/bus/subscriptions/{}"
_NUMBERS = ("max_events", "max_bytes", "timeout_ms", "in_flight", "max_attempts", "max_age_hours")
_TEXTS = ("callback", "uuid", "contact")
_NEW: Values = {
    "key": "", "callback": "", "topics": (), "filter": {"types": (), "url_prefix": "", "data": ()}, "headers": {},
    "max_events": 100, "max_bytes": 2**20, "timeout_ms": 500, "ordered": False, "in_flight": 8, "max_attempts": 20,
    "max_age_hours": 72, "uuid": "", "contact": "",
}  # fmt: skip


class BusDefinitionPages(PageSet):
    """The forms of subscriptions. A key `new` may be somebody's, so the form is not in its place."""

    @PageRoute("/bus/new-subscription", template="bus/definition.html", section=SECTION.path)
    async def show_new(self, visit: Visit) -> Values:
        """The form of a new one, in the reader's own namespace."""
        return tell_whose(visit) | {"title": "New subscription", "is_new": True} | _fill_in(visit, _NEW)

    @FormRoute("/bus/new-subscription", page="show_new", template="bus/secret.html")
    async def make_subscription(self, visit: Visit) -> Values:
        """Make it, and show its secret this once."""
        key = visit.read_field("subscription_key")  # a form's field `key` is that of its idempotency
        await self._check_key(visit, key)
        return show_secret(visit, await visit.send("PUT", _SUBSCRIPTION, key, body=read_body(visit)))

    @PageRoute(_EDIT, template="bus/definition.html", section=SECTION.path)
    async def show_edit(self, visit: Visit) -> Values:
        """The form of one that is there."""
        subscription = await visit.read(_SUBSCRIPTION, visit.path("key"))
        title = f"Change {subscription['key']}"
        return tell_whose(visit) | {"title": title, "is_new": False} | _fill_in(visit, subscription)

    @FormRoute(_EDIT, page="show_edit")
    async def change_subscription(self, visit: Visit) -> Moved:
        """Change it."""
        key = visit.path("key")
        await visit.read(_SUBSCRIPTION, key)
        await visit.send("PUT", _SUBSCRIPTION, key, body=read_body(visit))
        return Moved(below(visit, SUBSCRIPTION_PAGE, key), "saved")

    async def _check_key(self, visit: Visit, key: str) -> None:
        """Raise `ApiProblem` for a key that is taken or that no path can have: the route would change that one."""
        if not key or key in {".", ".."} or "/" in key:
            raise refuse("key", "a key has 1 to 255 of letters, digits and - _ . ~ :")
        try:
            await visit.read(_SUBSCRIPTION, key)
        except ApiProblem as problem:
            if problem.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            raise refuse("key", f"there is a subscription {key} already")


def read_body(visit: Visit) -> Values:
    """What was typed, as the body of the API. Raises `ApiProblem`."""
    body: Values = {name: visit.read_field(name) for name in _TEXTS}
    body |= {name: number for name in _NUMBERS if (number := read_number(visit.form, name)) is not None}
    body["topics"] = visit.read_field("topics").split()
    body["ordered"] = "ordered" in visit.form
    body["filter"] = {
        "types": visit.read_field("types").split(),
        "url_prefix": visit.read_field("url_prefix"),
        "data": [read_condition(line) for line in read_lines(visit.form, "conditions")],
    }
    if "no_headers" in visit.form:
        body["headers"] = {}
    elif headers := read_pairs(visit.form, "headers"):
        body["headers"] = headers
    return body


def _fill_in(visit: Visit, stands: Values) -> Values:
    """What the fields hold: what was typed, else how it stands. Values of headers are never shown."""
    wanted = stands["filter"]
    shown = {name: stands[name] for name in (*_TEXTS, *_NUMBERS)} | {
        "subscription_key": stands["key"],
        "topics": " ".join(stands["topics"]),
        "types": " ".join(wanted["types"]),
        "url_prefix": wanted["url_prefix"],
        "conditions": "\n".join(_write_condition(each) for each in wanted["data"]),
        "headers": "",
    }
    ordered = "ordered" in visit.form if visit.form else stands["ordered"]
    return {
        "fields": shown | {name: typed for name, typed in visit.form.items() if name in shown},
        "ordered": ordered,
        "headers": sorted(stands["headers"]),
        "key": stands["key"],
    }


def _write_condition(condition: Values) -> str:
    return f"{condition['path']} {condition['op']} {msgspec.json.encode(condition['value']).decode()}"
