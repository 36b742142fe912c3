"""`/ui/schedules/new` and `…/edit`: a schedule is made or changed, with its next instants to look at before."""

from typing import Any

from services.api.clock.pages.forms import BLANK, fill_form, read_definition
from services.api.clock.pages.schedules import SCHEDULES, describe_schedule, link_schedule
from services.api.clock.pages.words import in_zone
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.visits import Visit, address

_NEW, _EDIT = "/schedules/new", "/schedules/{key:str}/edit"


class DefinitionPages(PageSet):
    """The form of a schedule."""

    @PageRoute(_NEW, template="clock/new.html", section=SCHEDULES)
    async def show_new(self, visit: Visit) -> Values:
        """The empty form. `new` may be a key too: the page of that schedule is the one that names its namespace."""
        if visit.query("namespace"):
            return await describe_schedule(visit, "new")
        return {"title": "New schedule", "form": visit.form or BLANK, "path": _NEW, "is_new": True, "preview": None}

    @FormRoute(_NEW, page="show_new")
    async def create_schedule(self, visit: Visit) -> Moved:
        """Make it."""
        made = await visit.send("POST", "/schedules", body=_read_new(visit))
        return Moved(link_schedule(visit.caller.namespace, made["key"]), "made")

    @FormRoute(_NEW + "/preview", page="show_new")
    async def preview_new(self, visit: Visit) -> Values:
        """Tell its next instants."""
        return await self.show_new(visit) | {"preview": await _preview(visit, _read_new(visit))}

    @PageRoute(_EDIT, template="clock/definition.html", section=SCHEDULES)
    async def show_edit(self, visit: Visit) -> Values:
        """The form with what a schedule says. Only its owner changes it: the API knows no other way."""
        key = visit.path("key")
        schedule = await visit.read("/schedules/{}", key)
        form, path = visit.form or fill_form(schedule), address("/schedules/{}", key) + "/edit"
        return {"title": key, "form": form, "path": path, "is_new": False, "preview": None}

    @FormRoute(_EDIT, page="show_edit")
    async def save_schedule(self, visit: Visit) -> Moved:
        """Replace what it says."""
        key = visit.path("key")
        await visit.send("PUT", "/schedules/{}", key, body=read_definition(visit.form))
        return Moved(link_schedule(visit.caller.namespace, key), "saved")

    @FormRoute(_EDIT + "/preview", page="show_edit")
    async def preview_edit(self, visit: Visit) -> Values:
        """Tell the next instants of what is typed."""
        body = read_definition(visit.form) | {"key": visit.path("key")}
        return await self.show_edit(visit) | {"preview": await _preview(visit, body)}


def _read_new(visit: Visit) -> dict[str, Any]:
    # A form's field `key` is that of its idempotency.
    key = visit.read_field("schedule_key")
    return ({"key": key} if key else {}) | read_definition(visit.form)


async def _preview(visit: Visit, body: dict[str, Any]) -> list[tuple[str, str]]:
    told = await visit.send("POST", "/schedules/preview", body=body)
    return in_zone(told["next"], body.get("timezone", ""))
