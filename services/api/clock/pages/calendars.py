"""`/ui/calendars`, one calendar, and the form that makes or changes one."""

from collections.abc import Mapping
from typing import Any

from services.api.http.pages.forms import LINES, Field, Sheet, fill_form, read_body
from services.api.http.pages.html import number, query_of
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.things import Cell, ListPage, Move, ThingPage
from services.api.http.pages.visits import Visit, address

SECTION = NavSection("Calendars", "/calendars", order=110, group="Schedule")
_NEW, _EDIT = "/new-calendar", "/calendars/{calendar:str}/edit"  # a calendar may have the name `new`
_DAYS = Sheet("Days", (
    Field("dates", "Dates, one per line", LINES, like="2026-12-25"),
    Field("timezone", "Time zone", like="Europe/Paris"),
))  # fmt: skip
_NAME = Field("name", "Name", like="feasts", says="Letters, digits and - _ . ~ :", typed="calendar_name")
_NEW_ONE = (Sheet(_DAYS.title, (_NAME, *_DAYS.parts)),)


def _tell_days(calendar: Mapping[str, Any]) -> str:
    dates = calendar["dates"]
    return ", ".join(dates[:5]) + (f" and {number(len(dates) - 5)} more" if len(dates) > 5 else "")


CALENDARS = ListPage(
    section=SECTION,
    heading="All calendars",
    new=("New calendar", _NEW),
    cells=(
        Cell("Name", "name", "link", to="/calendars/{}"),
        Cell("Days", kind="wide", tell=_tell_days),
        Cell("Time zone", "timezone"),
        Cell("Changed", "updated_at", "ago"),
    ),
    empty="There are no calendars here yet. A calendar names days on which schedules do not fire. To create one, run "
    "`carillon calendars put feasts --date 2026-12-25`.",
)
CALENDAR = ThingPage(
    section=SECTION,
    parameter="calendar",
    name="name",
    has_edit=True,
    state=lambda _: "",
    facts=(
        Cell("Days", tell=lambda calendar: ", ".join(calendar["dates"])),
        Cell("Time zone", "timezone"),
        Cell("Changed", "updated_at", "full"),
    ),
    moves=(
        Move("delete", "Delete", "This deletes the calendar. No schedule may exclude it.", "deleted",
             is_bad=True, ends=True, method="DELETE"),
    ),
)  # fmt: skip


class CalendarFormPages(PageSet):
    section = SECTION

    @PageRoute(_NEW, template="clock/calendar-form.html")
    async def show_new(self, visit: Visit) -> Values:
        return {"title": "New calendar", "sheets": _NEW_ONE, "form": visit.form or {"timezone": "UTC"}, "path": _NEW}

    @FormRoute(_NEW, page="show_new")
    async def create_calendar(self, visit: Visit) -> Moved:
        body = read_body(_NEW_ONE, visit.form)
        return await _save(visit, body.pop("name", "") or "", body)

    @PageRoute(_EDIT, template="clock/calendar-form.html")
    async def show_edit(self, visit: Visit) -> Values:
        """The form with the days of a calendar, for its owner."""
        name = visit.path("calendar")
        form = visit.form or fill_form((_DAYS,), await visit.read("/calendars/{}", name))
        return {"title": name, "sheets": (_DAYS,), "form": form, "path": address("/calendars/{}", name) + "/edit"}

    @FormRoute(_EDIT, page="show_edit")
    async def save_calendar(self, visit: Visit) -> Moved:
        return await _save(visit, visit.path("calendar"), read_body((_DAYS,), visit.form))


async def _save(visit: Visit, name: str, body: dict[str, Any]) -> Moved:
    await visit.send("PUT", "/calendars/{}", name, body={"dates": [], **body})
    return Moved(address("/calendars/{}", name) + query_of(namespace=visit.caller.namespace), "saved")
