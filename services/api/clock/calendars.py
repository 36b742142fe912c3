"""`/calendars`: the days on which schedules of a namespace do not fire."""

from datetime import date
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.params import FromPath
from msgspec import UNSET

from carillon.wire.clock import CalendarBody, StoredCalendar
from services.api.accounts.apps import (
    CALLERS_NAMESPACE,
    NAMESPACE,
    NAMESPACES,
    namespace_of,
    namespaces_of,
    own_namespace,
)
from services.api.http import bodies, paging
from services.api.http.bodies import Checks, Timestamp, decode_body
from services.api.http.rights import KNOWN, OPERATE_NAMESPACE, VIEW_NAMESPACE
from services.api.http.routes import Resource, Route
from shared.clock.rules.calendars import DATES, Calendar
from shared.clock.rules.recurrence import find_zone
from shared.clock.rules.schedules import KEY, check_key, read_schedule_id, schedule_id
from shared.core.errors import Conflict, Invalid, NotFound
from shared.core.instants import format_instant
from shared.store import Store

CALENDARS = "/calendars"
CALENDAR = "/calendars/{calendar:str}"
_USERS = 10
Shown = StoredCalendar[Timestamp]
_decoder = msgspec.json.Decoder(CalendarBody)
_segments = {"calendar": {"type": "string", "pattern": f"^{KEY.pattern}$", "description": "The name of the calendar."}}
_route = partial(Route, segments=_segments)


class CalendarsResource(Resource):
    def __init__(self, store: Store) -> None:
        self._store = store

    @_route(
        "GET", CALENDARS, summary="List the calendars of a namespace by name, or of all (`*`).",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: list[Shown]}, parameters=(NAMESPACES,), paged=True,
    )  # fmt: skip
    async def list_calendars(self, request: Request[Any, Any, Any]) -> Response[bytes]:
        asked, namespace = paging.read_page(request, str), namespaces_of(request)
        lead = schedule_id(namespace, "") if namespace else ""
        found = await self._store.calendars.page(lead, after=asked.after or "", limit=asked.limit)
        headers = paging.links(request, asked, found, lambda each: each.name if namespace else each.id)
        return bodies.answer([_show(each, with_namespace=not namespace) for each in found], headers=headers)

    @_route(
        "GET", CALENDAR, summary="Show a calendar.",
        who=VIEW_NAMESPACE, answers={HTTPStatus.OK: Shown}, problems=(HTTPStatus.NOT_FOUND,), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def get_calendar(self, request: Request[Any, Any, Any], calendar: FromPath[str]) -> Response[bytes]:
        found = await self._store.calendars.get(schedule_id(namespace_of(request), calendar))
        if found is None:
            raise _not_found(calendar)
        return bodies.answer(_show(found))

    @_route(
        "PUT", CALENDAR, summary="Make or replace a calendar. The schedules that exclude it follow within seconds.",
        act="calendar.replace", who=KNOWN, body=CalendarBody, limits=Checks({}),
        answers={HTTPStatus.CREATED: Shown, HTTPStatus.OK: Shown}, parameters=(CALLERS_NAMESPACE,),
    )  # fmt: skip
    async def put_calendar(self, request: Request[Any, Any, Any], calendar: FromPath[str]) -> Response[bytes]:
        namespace = own_namespace(request)
        body = decode_body(await request.body(), _decoder, limits=Checks({}))
        check_key(calendar, field="name")
        find_zone(body.timezone)
        made = Calendar(
            id=schedule_id(namespace, calendar),
            namespace=namespace,
            name=calendar,
            timezone=body.timezone,
            dates=_read_dates(body.dates),
            updated_at=await self._store.now(),
        )
        is_new = await self._store.calendars.put(made)
        return bodies.answer(_show(made), HTTPStatus.CREATED if is_new else HTTPStatus.OK)

    @_route(
        "DELETE", CALENDAR, summary="Delete a calendar that no schedule excludes.",
        act="calendar.delete", who=OPERATE_NAMESPACE, answers={HTTPStatus.NO_CONTENT: None},
        problems=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT), parameters=(NAMESPACE,),
    )  # fmt: skip
    async def delete_calendar(self, request: Request[Any, Any, Any], calendar: FromPath[str]) -> Response[None]:
        id_ = schedule_id(namespace_of(request), calendar)
        users = await self._store.schedules.page_excluding(id_, limit=_USERS + 1)
        if users:
            keys = ", ".join(read_schedule_id(each.id)[1] for each in users[:_USERS])
            more = ", …" if len(users) > _USERS else ""
            raise Conflict(f"schedules exclude this calendar: {keys}{more}", field="name", value=calendar)
        if not await self._store.calendars.remove(id_):
            raise _not_found(calendar)
        return bodies.empty()


def _read_dates(texts: Any) -> tuple[str, ...]:
    if not 1 <= len(texts) <= DATES:
        raise Invalid(f"1 to {DATES:,} dates are needed", field="dates", value=len(texts))
    for index, text in enumerate(texts):
        try:
            is_date = date.fromisoformat(text).isoformat() == text
        except ValueError:
            is_date = False
        if not is_date:
            raise Invalid("a date is a year, a month and a day, as 2026-12-25", field=f"dates[{index}]", value=text)
    return tuple(sorted(set(texts)))


def _show(calendar: Calendar, *, with_namespace: bool = False) -> StoredCalendar[str]:
    return StoredCalendar(
        namespace=calendar.namespace if with_namespace else UNSET,
        name=calendar.name,
        dates=calendar.dates,
        timezone=calendar.timezone,
        updated_at=format_instant(calendar.updated_at),
    )


def _not_found(name: str) -> NotFound:
    return NotFound("there is no calendar with this name", field="name", value=name)
