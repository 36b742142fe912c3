"""`/ui/schedules`, one schedule, and the form that makes or changes one after a look at its next instants; and
`/ui/dead-letters`: occurrences whose last attempt was refused."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

from msgspec.structs import replace

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
from services.api.http.pages.html import known_time, number, pretty, query_of, span
from services.api.http.pages.namespaces import EVERY, chosen_namespace, read_choice, read_names, tell_namespace
from services.api.http.pages.pictures import Piece
from services.api.http.pages.routes import FormRoute, Moved, NavSection, PageRoute, PageSet, Values, act_on_chosen
from services.api.http.pages.visits import SHOWN, ApiAnswer, ApiProblem, Visit, address
from shared.core.time_zones import time_zone

_SCHEDULES = "/schedules"
SECTION = NavSection("Schedules", _SCHEDULES, order=100, group="Schedule", needs=("failing-callbacks",))
_ONE = "/schedules/{key:str}"
_SAID = {"fire": "fired", "pause": "paused", "resume": "resumed"}
_DAY = timedelta(days=1, seconds=-1)  # the API ends earlier if more than 50 instants are due
_STEPS = tuple(timedelta(seconds=each) for each in (1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600))
_MOST_STEPS = 24
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MISFIRE = {"fire": "They fire late.", "skip": "They are skipped."}
_KEPT_SECONDS = 4.5  # less than a refresh is from the next


class SchedulePages(PageSet):
    section = SECTION

    @PageRoute(_SCHEDULES, template="clock/schedules.html", refresh_seconds=5)
    async def show_schedules(self, visit: Visit) -> Values:
        chosen = chosen_namespace(visit)
        is_one = chosen != EVERY
        cursor = "" if is_one else visit.query("cursor")
        choosing = read_choice(visit, chosen, cursor=cursor, counts=not is_one)
        due, choice = await visit.read_all(_read_due(visit, chosen), choosing)
        found, wrong = await _search(visit, chosen) if is_one else (ApiAnswer([]), None)
        return {
            "title": "Schedules",
            "choice": choice,
            "due": due["instants"],
            "picture": picture_due(due),
            "found": found.value,
            "tell_when": tell_when,
            "tell_callback": tell_callback,
            "next": found.next if is_one else choice.next,
            "wrong": wrong,
            "may_make": chosen in {EVERY, visit.caller.namespace},
        }

    @PageRoute(_ONE, template="clock/schedule.html", refresh_seconds=5)
    async def show_schedule(self, visit: Visit) -> Values:
        key, namespace = visit.path("key"), visit.query("namespace") or visit.caller.namespace
        schedule, names = await visit.read_all(visit.read("/schedules/{}", key, namespace=namespace), read_names(visit))
        letters = await visit.try_read("Its dead letters", "/dead-letters", key=key, namespace=namespace, limit=1)
        return {
            "title": key,
            "schedule": schedule,
            "namespace": namespace,
            "whose": tell_namespace(namespace, names),
            "letters": letters or [],
            "when": tell_when(schedule),
            "does": tell_callback(schedule["callback"]),
            "misfire": tell_misfire(schedule["misfire"]),
            "retry": tell_retry(schedule["retry"]),
            "instants": in_zone(schedule["next"], schedule.get("timezone", "")),
            "is_own": namespace == visit.caller.namespace,
            "firing": _name_firing(schedule),
        }

    @FormRoute(_ONE, acts=("fire", "pause", "resume"), page="show_schedule")
    async def move_schedule(self, visit: Visit) -> Moved:
        query = {"namespace": visit.query("namespace")}
        await visit.send("POST", f"/schedules/{{}}/{visit.act}", visit.path("key"), query=query)
        return Moved(_address_of(visit), _SAID[visit.act])

    @FormRoute(_ONE + "/cancel", page="show_schedule")
    async def cancel_instant(self, visit: Visit) -> Moved:
        key, query = visit.path("key"), {"namespace": visit.query("namespace")}
        await visit.send("DELETE", "/schedules/{}/occurrences/{}", key, visit.query("instant"), query=query)
        return Moved(_address_of(visit), "cancelled")

    @FormRoute(_ONE + "/delete", page="show_schedule")
    async def delete_schedule(self, visit: Visit) -> Moved:
        namespace = visit.query("namespace")
        await visit.send("DELETE", "/schedules/{}", visit.path("key"), query={"namespace": namespace})
        return Moved(_SCHEDULES + query_of(namespace=namespace), "deleted")


def link_schedule(namespace: str, key: str) -> str:
    return address("/schedules/{}", key) + query_of(namespace=namespace)


async def _read_due(visit: Visit, namespace: str) -> Any:
    """The next instants, shared by all readers of this namespace, because their pages ask often."""
    read = partial(visit.read, "/schedules/due", namespace=namespace)
    may_see = visit.may("viewer") if namespace == EVERY else visit.may("viewer", namespace=namespace)
    if not may_see:
        return await read()  # which refuses
    return await visit.read_shared(("/schedules/due", namespace), read, seconds=_KEPT_SECONDS)


async def _search(visit: Visit, namespace: str) -> tuple[ApiAnswer, ApiProblem | None]:
    """A page of schedules; empty with the mistake if the search cannot match."""
    asked = {name: visit.query(name) for name in ("prefix", "state", "label")}
    try:
        return await visit.read_list("/schedules", namespace=namespace, **asked), None
    except ApiProblem as problem:
        if problem.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise
        return ApiAnswer([]), problem


def _address_of(visit: Visit) -> str:
    return link_schedule(visit.query("namespace") or visit.caller.namespace, visit.path("key"))


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


def tell_when(definition: Mapping[str, Any]) -> str:
    if "every" in definition:
        return f"Every {span(definition['every'])}"
    if "cron" in definition:
        zone = definition.get("timezone") or "UTC"
        return f"{_tell_cron(definition['cron'])}, {zone} time"
    count = len(definition.get("schedules", ()))
    if not count:
        return "At listed times"
    return "Once" if count == 1 else f"At {number(count)} times"


def tell_callback(callback: Mapping[str, Any]) -> str:
    data = callback["data"]
    match callback["type"]:
        case "http":
            return f"{data['method']} {data['url']}"
        case "rabbitmq" if data.get("queue"):
            return f"A message to the queue {data['queue']}"
        case "rabbitmq":
            return f"A message to the exchange {data.get('exchange')}, routing key “{data.get('routing_key') or ''}”"
        case _:
            return f"A record to the topic {data['topic']}" + (f", key {data['key']}" if data.get("key") else "")


def tell_misfire(misfire: str | Mapping[str, Any]) -> str:
    if isinstance(misfire, str):
        return _MISFIRE[misfire]
    return f"They fire if they are at most {span(misfire['fire_within_seconds'])} late, and are skipped otherwise."


def tell_retry(retry: Mapping[str, Any]) -> str:
    attempts = retry["attempts"]
    if attempts == 1:
        return "Once. A refused occurrence becomes a dead letter at once."
    first, cap = span(retry["first_delay_seconds"]), span(retry["cap_seconds"])
    grows = f", each next pause is {retry['factor']:g} times as long, at most {cap}" if retry["factor"] > 1 else ""
    return f"Up to {attempts} times. The first pause is {first}{grows}."


def in_zone(instants: Sequence[str], timezone: str) -> list[tuple[str, str]]:
    """Each instant, and what the clocks of that zone show then, `""` without a zone."""
    if not timezone:
        return [(instant, "") for instant in instants]
    zone = time_zone(timezone)
    return [(instant, f"{known_time(instant).astimezone(zone):%a %d %b %H:%M}") for instant in instants]


def _tell_cron(line: str) -> str:
    """Common lines in words; others as they are."""
    minute, hour, day, month, weekday = line.split()
    if month != "*" or not minute.isdigit():
        return f"Cron “{line}”"
    if hour == "*" and day == weekday == "*":
        return f"Every hour at minute {minute}"
    days = _tell_days(day, weekday)
    if not hour.isdigit() or days is None:
        return f"Cron “{line}”"
    return f"{days} at {int(hour):02}:{int(minute):02}"


def _tell_days(day: str, weekday: str) -> str | None:
    if weekday == "*":
        return "Every day" if day == "*" else f"On day {day} of each month" if day.isdigit() else None
    if day != "*":
        return None
    if weekday in {"1-5", "mon-fri", "MON-FRI"}:
        return "Monday to Friday"
    return f"Every {_DAYS[int(weekday)]}" if weekday in set("01234567") else None


_NEW, _EDIT = "/new-schedule", "/schedules/{key:str}/edit"  # a schedule may have the key `new`
_HEADERS = Field("callback.data.headers", "Headers, one per line", PAIRS, like="x-order: 17")
_PAYLOAD = Field("callback.data.payload", "Payload, as JSON", JSON, like='{"order": 17}')
_SECRET = "Carillon never shows the secret. Empty: it does not sign calls."
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
    )),
    _PAYLOAD,
    _HEADERS,
))  # fmt: skip
_MORE = Sheet("Limits, late and failed occurrences, labels", (
    (Field("starts_at", "Not before (UTC)", TIME), Field("ends_at", "Not after (UTC)", TIME)),
    (Field("max_occurrences", "At most, times", WHOLE, like="no limit"),
     Field("window_seconds", "Spread over, seconds", NUMBER, like="0")),
    Choice("misfire", (
        Option("fire", "Fire late occurrences"),
        Option("within", "Fire unless later than", (
            Field("misfire.fire_within_seconds", "Seconds", NUMBER, like="600"),
        )),
        Option("skip", "Skip late occurrences"),
    )),
    (Field("retry.attempts", "Attempts", WHOLE, like="10"),
     Field("retry.first_delay_seconds", "First pause, seconds", NUMBER, like="5"),
     Field("retry.factor", "Each next pause is longer by the factor", NUMBER, like="3"),
     Field("retry.cap_seconds", "Longest pause, seconds", NUMBER, like="3600")),
    Field("labels", "Labels, one per line", PAIRS, like="team: billing"),
), is_folded=True)  # fmt: skip
# A form's field `key` is that of its idempotency.
_KEY = Field("key", "Key", like="order.17.reminder", says="Letters, digits and - _ . ~ :", typed="schedule_key")
_EDITED = (_WHEN, _CALLBACK, _MORE)
_NEW_ONE = (replace(_WHEN, parts=(_KEY, *_WHEN.parts)), _CALLBACK, _MORE)
_BLANK = {"when": "cron", "timezone": "UTC", "callback.type": "http", "callback.data.method": "POST", "misfire": "fire"}


class DefinitionPages(PageSet):
    section = SECTION

    @PageRoute(_NEW, template="clock/definition.html")
    async def show_new(self, visit: Visit) -> Values:
        form = visit.form or _BLANK
        return {
            "title": "New schedule",
            "sheets": _NEW_ONE,
            "form": form,
            "path": _NEW,
            "is_new": True,
            "preview": None,
        }

    @FormRoute(_NEW, page="show_new")
    async def create_schedule(self, visit: Visit) -> Moved:
        made = await visit.send("POST", "/schedules", body=read_body(_NEW_ONE, visit.form))
        return Moved(link_schedule(visit.caller.namespace, made["key"]), "made")

    @FormRoute(_NEW + "/preview", page="show_new")
    async def preview_new(self, visit: Visit) -> Values:
        return await self.show_new(visit) | {"preview": await _preview(visit, read_body(_NEW_ONE, visit.form))}

    @PageRoute(_EDIT, template="clock/definition.html")
    async def show_edit(self, visit: Visit) -> Values:
        """The form with what a schedule says. Only its owner changes it: the API knows no other way."""
        key = visit.path("key")
        schedule = await visit.read("/schedules/{}", key)
        form, path = visit.form or fill_form(_EDITED, schedule), address("/schedules/{}", key) + "/edit"
        return {"title": key, "sheets": _EDITED, "form": form, "path": path, "is_new": False, "preview": None}

    @FormRoute(_EDIT, page="show_edit")
    async def save_schedule(self, visit: Visit) -> Moved:
        key = visit.path("key")
        await visit.send("PUT", "/schedules/{}", key, body=await _read_changed(visit))
        return Moved(link_schedule(visit.caller.namespace, key), "saved")

    @FormRoute(_EDIT + "/preview", page="show_edit")
    async def preview_edit(self, visit: Visit) -> Values:
        body = await _read_changed(visit) | {"key": visit.path("key")}
        return await self.show_edit(visit) | {"preview": await _preview(visit, body)}


async def _read_changed(visit: Visit) -> dict[str, Any]:
    """The body with the stored bytes of a payload that was not edited, because a receiver may compare them."""
    body = read_body(_EDITED, visit.form)
    data = (await visit.read("/schedules/{}", visit.path("key")))["callback"]["data"]
    if "payload" in data and visit.read_field(_PAYLOAD.name) == pretty(data["payload"]):
        body["callback"]["data"]["payload"] = data["payload"]
    return body


async def _preview(visit: Visit, body: dict[str, Any]) -> list[tuple[str, str]]:
    told = await visit.send("POST", "/schedules/preview", body=body)
    return in_zone(told["next"], body.get("timezone", ""))


LETTERS = "/dead-letters"
_LETTER = "/dead-letters/{letter_id:str}"
_READ, _READS = 200, 5
Letters = list[dict[str, Any]]


class DeadLetterPages(PageSet):
    section = NavSection(
        "Dead letters", LETTERS, order=200, group="Problems", needs=("dead-letters", "bus-dead-letters")
    )
    tab = NavSection("Schedules", LETTERS, under=LETTERS, order=0)

    @PageRoute(LETTERS, template="clock/dead-letters.html", refresh_seconds=5)
    async def show_letters(self, visit: Visit) -> Values:
        chosen, key = chosen_namespace(visit), visit.query("key")
        errors, choice, (letters, following) = await visit.read_all(
            visit.read("/dead-letters/errors", namespace=chosen, key=key),
            read_choice(visit, chosen),
            _find(visit, chosen, key, visit.query("error")),
        )
        return {
            "title": "Dead letters",
            "choice": choice,
            "errors": errors,
            "counted": sum(each["count"] for each in errors),
            "letters": letters,
            "next": following,
            "redacted": any(letter["redacted"] for letter in letters),
        }

    @FormRoute(LETTERS, acts=("retry", "discard"), page="show_letters")
    async def act_on_letters(self, visit: Visit) -> Moved:
        """Retry or discard the chosen ones. A value is a namespace and an id."""
        return await act_on_chosen(visit, _back(visit), lambda chosen: _act(visit, *chosen.split(" ", 1)))

    @PageRoute(_LETTER, template="clock/dead-letter.html", refresh_seconds=5)
    async def show_letter(self, visit: Visit) -> Values:
        namespace = visit.query("namespace") or visit.caller.namespace
        letter, names = await visit.read_all(
            visit.read("/dead-letters/{}", visit.path("letter_id"), namespace=namespace), read_names(visit)
        )
        callback, schedule = letter["callback"], None
        if callback:
            schedule = await visit.try_read(
                "Its schedule", "/schedules/{}", letter["key"], namespace=letter["namespace"]
            )
        return {
            "title": f"Dead letter of {letter['key']}",
            "letter": letter,
            "whose": tell_namespace(letter["namespace"], names),
            "does": tell_callback(callback) if callback else "",
            "is_over": schedule is not None and not schedule["next"],
        }

    @FormRoute(_LETTER, acts=("retry", "discard"), page="show_letter")
    async def act_on_letter(self, visit: Visit) -> Moved:
        await _act(visit, visit.query("namespace"), visit.path("letter_id"))
        return Moved(_back(visit), {"retry": "retried", "discard": "discarded"}[visit.act])


async def _find(visit: Visit, namespace: str, key: str, error: str) -> tuple[Letters, str]:
    """A page of letters, and where the next one begins. The API cannot filter by error, so with `error` pages are read
    until one is full."""
    if not error:
        answer = await visit.read_list("/dead-letters", namespace=namespace, key=key)
        return answer.value, answer.next
    found: Letters = []
    cursor = visit.query("cursor")
    for _ in range(_READS):
        answer = await visit.read_list("/dead-letters", namespace=namespace, key=key, limit=_READ, cursor=cursor)
        found += [letter for letter in answer.value if letter["error"] == error]
        cursor = answer.next
        if not cursor or len(found) >= SHOWN:
            break
    return found, cursor


async def _act(visit: Visit, namespace: str, letter_id: str = "") -> None:
    await visit.send("POST", f"/dead-letters/{{}}/{visit.act}", letter_id, query={"namespace": namespace})


def _back(visit: Visit) -> str:
    return LETTERS + query_of(**{name: visit.query(name) for name in ("namespace", "key", "error")})
