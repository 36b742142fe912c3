"""`/ui/schedules`, one schedule, and the form that makes or changes one after a look at its next instants; and
`/ui/dead-letters`: occurrences whose last attempt was refused."""

import hashlib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from services.api.clock.pages.words import tell_callback, tell_misfire, tell_overlap, tell_retry, tell_when
from services.api.http.pages.forms import (
    JSON,
    LINES,
    NUMBER,
    PAIRS,
    TIME,
    WHOLE,
    Choice,
    Field,
    Option,
    Sheet,
    fill_form,
    read_body,
)
from services.api.http.pages.html import in_zone, known_time, number, pretty, query_of
from services.api.http.pages.namespaces import EVERY
from services.api.http.pages.pictures import Piece
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values
from services.api.http.pages.things import Cell, Filter, ListPage, Move, ThingPage
from services.api.http.pages.visits import Visit, address

SECTION = NavSection("Schedules", "/schedules", order=100, group="Schedule", needs=("failing-callbacks",))
_DAY = timedelta(days=1, seconds=-1)  # the API ends earlier if more than 50 instants are due
_STEPS = tuple(timedelta(seconds=each) for each in (1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600))
_MOST_STEPS = 24
_NEXT, _FIRST = 20, 8  # instants that the API tells, and that the page shows
_KEPT_SECONDS = 4.5  # less than a refresh is from the next


def link_schedule(namespace: str, key: str) -> str:
    return address("/schedules/{}", key) + query_of(namespace=namespace)


async def _read_due(visit: Visit, namespace: str) -> Values:
    """The next instants, shared by all readers of this namespace, because their pages ask often."""
    read = partial(visit.read, "/schedules/due", namespace=namespace)
    may_see = visit.may("viewer") if namespace == EVERY else visit.may("viewer", namespace=namespace)
    key = ("/schedules/due", namespace)
    due = await (visit.read_shared(key, read, seconds=_KEPT_SECONDS) if may_see else read())
    return {"due": due["instants"], "picture": picture_due(due)}


def _name_firing(schedule: Mapping[str, Any]) -> str:
    """An idempotency key that stays until something has happened, so that sending the form of one page twice fires
    once."""
    happened = [schedule["updated_at"], *(outcome["at"] for outcome in schedule["outcomes"][:1])]
    return "fire-" + hashlib.sha256("/".join([schedule["key"], *happened]).encode()).hexdigest()[:32]


def picture_due(due: Mapping[str, Any]) -> Values:
    """The instants of `GET /schedules/due` by time: a column for each `step`. Columns begin at round times, so they do
    not move between two refreshes. Overdue instants are in the first one. `is_whole` is false if the API has left some
    of the day out."""
    now = known_time(due["as_of"])
    until = max(now, known_time(due["until"]))
    step = next((step for step in _STEPS if until - now <= _MOST_STEPS * step), _STEPS[-1])
    begin = now - (now - datetime.min.replace(tzinfo=UTC)) % step
    starts = [begin + n * step for n in range((until - begin) // step + 1)]
    fires = Counter(max(0, (known_time(instant["at"]) - begin) // step) for instant in due["instants"])
    shape = "%H:%M:%S" if step < timedelta(minutes=1) else "%H:%M"
    columns = [Piece(f"from {start:{shape}} UTC", fires[n], "accent") for n, start in enumerate(starts)]
    return {"columns": columns, "begin": begin, "end": starts[-1] + step, "step": step, "is_whole": until - now >= _DAY}


def _tell_labels(schedule: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}:{value}" for name, value in schedule["labels"].items())


def _tell_left(schedule: Mapping[str, Any]) -> str:
    """How many of the listed times are ahead, if not all are."""
    listed, left = len(schedule.get("schedules", ())), len(schedule["next"])
    return f"{left} of {number(listed)} times" if left < min(listed, _NEXT) and schedule["state"] != "paused" else ""


def _find_change(schedule: Mapping[str, Any]) -> str:
    """When it was changed, if ever."""
    return "" if schedule["updated_at"] == schedule["created_at"] else str(schedule["updated_at"])


async def _read_schedule(visit: Visit, schedule: Mapping[str, Any]) -> Values:
    key, namespace = schedule["key"], visit.query("namespace")
    letters = await visit.try_read("Its dead letters", "/dead-letters", key=key, namespace=namespace, limit=1)
    shown = schedule["next"][: _NEXT if "schedules" in schedule else _FIRST]
    instants = in_zone(shown, schedule.get("timezone", ""))
    return {"letters": letters or [], "instants": instants}


def _ask_to_resume(schedule: Mapping[str, Any]) -> str:
    return "It fires again. For occurrences that came due in the meantime: " + tell_misfire(schedule["misfire"])


SCHEDULES = ListPage(
    section=SECTION,
    heading="All schedules",
    new=("New schedule", "/new-schedule"),
    needs_one=True,
    template="clock/schedules.html",
    read_more=_read_due,
    filters=(
        Filter("prefix", "Key begins with", like="order.1"),
        Filter("label", "Label", like="team:billing"),
        Filter("state", "State", values=("active", "paused", "finished")),
    ),
    cells=(
        Cell("Key", "key", "link", to="/schedules/{}"),
        Cell("State", "state", "state"),
        Cell("When", tell=tell_when),
        Cell("Callback", kind="wide", tell=lambda schedule: tell_callback(schedule["callback"])),
        Cell("Labels", tell=_tell_labels),
        Cell("Changed", "updated_at", "ago"),
    ),
    bulk=("schedule.pause", "schedule.resume"),
    empty="There are no schedules here yet. A schedule calls your service at the times you choose: once, at listed "
    "times, at an interval, or by a cron expression. To create one, run `carillon schedules create order.17.reminder "
    "--at 2026-12-24T14:00:00Z --http https://example.com/remind`.",
)
SCHEDULE = ThingPage(
    section=SECTION,
    parameter="key",
    name="key",
    has_edit=True,
    state=lambda schedule: str(schedule["state"]),
    template="clock/schedule.html",
    read_more=_read_schedule,
    facts=(
        Cell("When", tell=tell_when),
        Cell("Cron", "cron", "code"),
        Cell("Offsets", tell=lambda schedule: " ".join(schedule.get("offsets", ()))),
        Cell("Left", tell=_tell_left),
        Cell("From", "starts_at", "full"),
        Cell("Until", "ends_at", "full"),
        Cell("Fires at most", "max_occurrences", "number"),
        Cell("Leaves out", tell=lambda schedule: ", ".join(schedule.get("exclude", ()))),
        Cell("Shifts to the", tell=lambda schedule: f"{schedule['shift']} day" if "shift" in schedule else ""),
        Cell("Spread over", "window_seconds", "span"),
        Cell("Callback", tell=lambda schedule: tell_callback(schedule["callback"])),
        Cell("If a job is open", tell=tell_overlap),
        Cell("If late", tell=lambda schedule: tell_misfire(schedule["misfire"])),
        Cell("Attempts", tell=lambda schedule: tell_retry(schedule["retry"])),
        Cell("Labels", tell=_tell_labels),
        Cell("Created", "created_at", "full"),
        Cell("Changed", kind="full", tell=_find_change),
    ),
    moves=(
        Move("pause", "Pause", "It does not fire until someone resumes it.", "paused",
             is_possible=lambda schedule: schedule["state"] == "active"),
        Move("resume", "Resume", _ask_to_resume, "resumed", is_possible=lambda schedule: schedule["state"] == "paused"),
        Move("fire", "Fire now", "This does its callback once, now. Its planned times do not change.", "fired",
             key=_name_firing),
        Move("delete", "Delete", "This deletes the schedule and everything pending. This cannot be undone.", "deleted",
             is_bad=True, ends=True, method="DELETE"),
    ),
)  # fmt: skip


_CANCEL = "/schedules/{key:str}/cancel"
_NEW, _EDIT = "/new-schedule", "/schedules/{key:str}/edit"  # a schedule may have the key `new`
_HEADERS = Field("callback.data.headers", "Headers, one per line", PAIRS, like="x-order: 17")
_PAYLOAD = Field("callback.data.payload", "Payload, as JSON", JSON, like='{"order": 17}')
_SECRET = "Carillon never shows it: to save a change, type it again. If empty, the namespace's secret signs."
_WHEN = Sheet("When", (
    Choice("when", (
        Option("cron", "Cron expression", (
            Field("cron", "Minute hour day month weekday", like="0 9 * * 1-5"),
            Field("timezone", "Time zone", like="Europe/Paris"),
        )),
        Option("every", "At an interval", (Field("every", "Seconds between", WHOLE, like="3600"),)),
        Option("schedules", "At listed times", (
            Field("schedules", "One per line, with a time zone", LINES, like="2026-12-24T14:00:00Z"),
        )),
        Option("anchor", "Around a moment", (
            Field("anchor", "Moment (UTC)", TIME),
            Field("offsets", "Offsets from it, one per line", LINES, like="-90m"),
        )),
    ), is_sent=False),
))  # fmt: skip
_CALLBACK = Sheet("Callback", (
    Choice("callback.type", (
        Option("http", "Call a URL", (
            Field("callback.data.url", "URL", like="https://example.com/remind"),
            Field("callback.data.method", "Method", like="POST"),
            Field("callback.data.secret", "Secret to sign with", like="whsec_…", says=_SECRET),
        )),
        Option("rabbitmq", "Send a message to RabbitMQ", (
            Field("callback.data.queue", "Queue"), Field("callback.data.exchange", "or exchange"),
            Field("callback.data.routing_key", "with routing key"),
        )),
        Option("kafka", "Write a record to Kafka", (
            Field("callback.data.topic", "Topic"), Field("callback.data.key", "Key of the record"),
        )),
        Option("job", "Start a job, whose body is the payload", (
            Field("callback.data.app_id", "Id of the app"), Field("callback.data.template", "Template"),
            Field("callback.data.overlap", "If a job is open", like="skip", says="skip, queue or allow"),
            Field("callback.data.expires_after_seconds", "Expires after, seconds", WHOLE, like="21600"),
        )),
    )),
    _PAYLOAD,
    _HEADERS,
))  # fmt: skip
_MORE = Sheet("Limits, late and failed occurrences, labels", (
    (Field("starts_at", "Not before (UTC)", TIME), Field("ends_at", "Not after (UTC)", TIME)),
    (Field("max_occurrences", "At most, times", WHOLE, like="no limit"),
     Field("window_seconds", "Spread over, seconds", NUMBER, like="0")),
    (Field("exclude", "Leave out the days of these calendars, one per line", LINES, like="feasts"),
     Field("shift", "and fire on another day instead", like="next", says="next or previous")),
    Choice("misfire", (
        Option("fire", "Fire late occurrences"),
        Option("within", "Fire unless later than", (
            Field("misfire.fire_within_seconds", "Seconds", NUMBER, like="600"),
        )),
        Option("skip", "Skip late occurrences"),
    )),
    (Field("retry.attempts", "Attempts", WHOLE, like="10"),
     Field("retry.first_delay_seconds", "First pause, seconds", NUMBER, like="5"),
     Field("retry.factor", "Growth factor of the pauses", NUMBER, like="3"),
     Field("retry.cap_seconds", "Longest pause, seconds", NUMBER, like="3600")),
    Field("labels", "Labels, one per line", PAIRS, like="team: billing"),
), is_folded=True)  # fmt: skip
# The field `key` of a form is its idempotency key.
_KEY = Field("key", "Key", like="order.17.reminder", says="Letters, digits and - _ . ~ :", typed="schedule_key")
_EDITED = (_WHEN, _CALLBACK, _MORE)
_NEW_ONE = (replace(_WHEN, parts=(_KEY, *_WHEN.parts)), _CALLBACK, _MORE)
_BLANK = {"when": "cron", "timezone": "UTC", "callback.type": "http", "callback.data.method": "POST", "misfire": "fire"}
_NO_PREVIEW: Values = {"preview": None, "left_out": []}


class DefinitionPages(PageSet):
    section = SECTION

    def page_of(self, form: FormRoute) -> Any:
        return SCHEDULE.page_of(form) if form.path == _CANCEL else super().page_of(form)

    @PageRoute(_NEW, template="clock/definition.html")
    async def show_new(self, visit: Visit) -> Values:
        form = visit.form or _BLANK
        values = {"title": "New schedule", "sheets": _NEW_ONE, "form": form, "path": _NEW, "is_new": True}
        return values | _NO_PREVIEW

    @FormRoute(_NEW, page="show_new")
    async def create_schedule(self, visit: Visit) -> Moved:
        made = await visit.send("POST", "/schedules", body=read_body(_NEW_ONE, visit.form))
        return Moved(link_schedule(visit.caller.namespace, made["key"]), "made")

    @FormRoute(_NEW + "/preview", page="show_new")
    async def preview_new(self, visit: Visit) -> Values:
        return await self.show_new(visit) | await _preview(visit, read_body(_NEW_ONE, visit.form))

    @PageRoute(_EDIT, template="clock/definition.html")
    async def show_edit(self, visit: Visit) -> Values:
        """The form, filled with the schedule. The API lets only its owner change it."""
        key = visit.path("key")
        schedule = await visit.read("/schedules/{}", key)
        form, path = visit.form or fill_form(_EDITED, schedule), address("/schedules/{}", key) + "/edit"
        values = {"title": key, "sheets": _EDITED, "form": form, "path": path, "is_new": False}
        return values | _NO_PREVIEW

    @FormRoute(_EDIT, page="show_edit")
    async def save_schedule(self, visit: Visit) -> Moved:
        key = visit.path("key")
        await visit.send("PUT", "/schedules/{}", key, body=await _read_changed(visit))
        return Moved(link_schedule(visit.caller.namespace, key), "saved")

    @FormRoute(_EDIT + "/preview", page="show_edit")
    async def preview_edit(self, visit: Visit) -> Values:
        body = await _read_changed(visit) | {"key": visit.path("key")}
        return await self.show_edit(visit) | await _preview(visit, body)

    @FormRoute(_CANCEL)
    async def cancel_instant(self, visit: Visit) -> Moved:
        key, namespace = visit.path("key"), visit.query("namespace")
        path, query = "/schedules/{}/occurrences/{}", {"namespace": namespace}
        await visit.send("DELETE", path, key, visit.query("instant"), query=query)
        return Moved(link_schedule(namespace or visit.caller.namespace, key), "cancelled")


async def _read_changed(visit: Visit) -> dict[str, Any]:
    """The body with the stored bytes of a payload that was not edited, because a receiver may compare them."""
    body = read_body(_EDITED, visit.form)
    data = (await visit.read("/schedules/{}", visit.path("key")))["callback"]["data"]
    if "payload" in data and visit.read_field(_PAYLOAD.name) == pretty(data["payload"]):
        body["callback"]["data"]["payload"] = data["payload"]
    return body


async def _preview(visit: Visit, body: dict[str, Any]) -> Values:
    told = await visit.send("POST", "/schedules/preview", body=body)
    return {"preview": in_zone(told["next"], body.get("timezone", "")), "left_out": told.get("left_out") or []}


async def _read_errors(visit: Visit, chosen: str) -> Values:
    errors = await visit.read("/dead-letters/errors", namespace=chosen, key=visit.query("key"))
    return {"errors": errors, "counted": sum(each["count"] for each in errors)}


async def _read_letter(visit: Visit, letter: Mapping[str, Any]) -> Values:
    """The callback in words, and whether its schedule has no time left."""
    if letter["callback"] is None:
        return {"does": "", "is_over": False}
    key, namespace = letter["key"], letter["namespace"]
    schedule = await visit.try_read("Its schedule", "/schedules/{}", key, namespace=namespace)
    return {"does": tell_callback(letter["callback"]), "is_over": schedule is not None and not schedule["next"]}


_LETTERS = NavSection(
    "Dead letters", "/dead-letters", order=200, group="Problems", needs=("dead-letters", "bus-dead-letters")
)
LETTERS = ListPage(
    section=_LETTERS,
    tab=NavSection("Schedules", _LETTERS.path, under=_LETTERS.path, order=0),
    heading="Newest first",
    template="clock/dead-letters.html",
    read_more=_read_errors,
    filters=(Filter("key", "Key of the schedule"),),
    cells=(
        Cell("Schedule", "key", "link", to="/dead-letters/{}", by="id"),
        Cell("Died", "died_at", "ago"),
        Cell("Was due", "due", "short"),
        Cell("Attempts", "attempts", "number"),
        Cell("Error", "error", "wide", most=200, personal=True),
    ),
    discard="This discards the selected occurrences: their callbacks never happen.",
    bulk=("dead-letter.retry", "dead-letter.discard"),
    empty="There are no dead letters here. If a schedule's target refuses an occurrence at every attempt, Carillon "
    "keeps it here with the error. You can then retry or discard it. The `retry` rule of a schedule sets its number of "
    "attempts.",
)
LETTER = ThingPage(
    section=_LETTERS,
    parameter="letter_id",
    name="key",
    state=lambda _: "dead",
    template="clock/dead-letter.html",
    read_more=_read_letter,
    facts=(
        Cell("Schedule", "key", "link", to="/schedules/{}", is_linked=lambda letter: letter["callback"] is not None),
        Cell("Was due", "due", "full"),
        Cell("Died", "died_at", "full"),
        Cell("Attempts", "attempts", "number"),
        Cell("Message id", "id", "code"),
    ),
    moves=(
        Move("retry", "Retry", "This repeats the callback with the current definition of its schedule.", "retried",
             ends=True, is_possible=lambda letter: letter["callback"] is not None),
        Move("discard", "Discard", "This discards the occurrence: its callback never happens. This cannot be undone.",
             "discarded", ends=True, is_bad=True),
    ),
)  # fmt: skip
