"""`/ui/groups/…`: a localized push, whose zones start one after the other around the globe."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from services.api.http.pages.filters import UNKNOWN, known_time, percent, read_time, zone_name
from services.api.http.pages.pictures import StripBlock
from services.api.http.pages.routes import FormRoute, Moved, PageRoute, PageSet, Values
from services.api.http.pages.typed import MANY_DEVICES, check_name
from services.api.http.pages.visits import Visit, address
from services.api.jobs.pages.job import SAID, refuse_plainly
from services.api.jobs.pages.job_list import SECTION
from services.api.jobs.pages.job_words import Json, Shown, device_pieces, show_job

PATH = "/groups/{app_id:str}/{group_id:str}"
_TONES = {
    "waiting": "wait",
    "running": "busy",
    "paused": "accent",
    "tripped": "bad",
    "failed": "bad",
    "expired": "wait",
    "stopped": "idle",
    "completed": "good",
}
_WITHDRAWN = {"stopped", "expired"}
_SHORTEST, _STEP = timedelta(hours=24), timedelta(hours=4)
_QUARTERS = 4


class ZoneRow(Struct, frozen=True):
    """A zone: its job as the API tells it, how it stands, and when it starts."""

    job: Json
    shown: Shown
    starts: datetime

    @property
    def devices(self) -> int:
        return int(self.job["devices"] or self.job["totalTokens"])

    @property
    def is_empty(self) -> bool:
        """Whether it is known to have no devices, and nothing failed."""
        return self.job["devices"] is not None and not self.devices and not self.job["failure"]

    @property
    def has_started(self) -> bool:
        """Whether its start has come, and found it neither stopped nor expired."""
        return not self.shown.waits and bool(self.job["totalTokens"] or self.shown.word not in _WITHDRAWN)


class DayAxis(Struct, frozen=True):
    """The time in which all zones start: whole hours, a day or somewhat more."""

    begin: datetime
    length: timedelta

    def place(self, at: datetime) -> float:
        """The position of an instant on the axis: 0 at its begin, 1 at its end."""
        return (at - self.begin) / self.length

    @property
    def ticks(self) -> list[datetime]:
        return [self.begin + self.length * quarter / _QUARTERS for quarter in range(_QUARTERS + 1)]


class GroupPages(PageSet):
    section = SECTION

    @PageRoute(PATH, template="jobs/group.html", refresh_seconds=2, shared_by_roles=True)
    async def show_group(self, visit: Visit) -> Values:
        app_id, group_id = visit.path("app_id"), visit.path("group_id")
        group = await visit.read("/apps/{}/groups/{}", app_id, group_id)
        app = await visit.try_read("The app", "/apps/{}", app_id)
        rows, starts = zone_rows(group), read_time(group["startsAt"])
        axis = day_axis(rows)
        left = sum(max(row.devices - row.job["completedTokens"], 0) for row in rows)
        has_ended = all(row.shown.has_ended for row in rows)
        return {
            "title": group["name"] or "Localized push",
            "group": group,
            "app": app,
            "rows": rows,
            "word": _word_for_all(rows),
            "local_time": f"{starts:%H:%M}" if starts else UNKNOWN,
            "counts": _count_words(rows),
            "started": sum(row.has_started for row in rows),
            "planned": sum(row.devices for row in rows),
            "waiting": sum(row.shown.waits for row in rows),
            "tones": _TONES,
            "axis": axis,
            "blocks": strip_blocks(rows, axis),
            "at": axis.place(datetime.now(UTC)),
            "pieces": device_pieces(group, left, has_ended=has_ended),
            "left": group["totalTokens"] - group["completedTokens"],
            "may_move": {move: sum(getattr(row.shown, f"may_{move}") for row in rows) for move in SAID},
            "name": _name_to_type(group, app),
            "here_path": address("/groups/{}/{}", app_id, group_id),
        } | ({"refresh_seconds": 0} if has_ended else {})

    @FormRoute(PATH, acts=("pause", "resume", "stop"), page="show_group")
    async def move_group(self, visit: Visit) -> Moved:
        ids = visit.path("app_id"), visit.path("group_id")
        if visit.act == "stop":
            group = await visit.read("/apps/{}/groups/{}", *ids)
            check_name(visit.form, _name_to_type(group, await visit.try_read("The app", "/apps/{}", ids[0])))
        await refuse_plainly(visit.send("PUT", f"/apps/{{}}/groups/{{}}/{visit.act}", *ids))
        return Moved(address("/groups/{}/{}", *ids), SAID[visit.act])


def zone_rows(group: Json) -> list[ZoneRow]:
    return sorted((_zone_row(zone, group) for zone in group["zones"]), key=lambda row: row.starts)


def day_axis(rows: Sequence[ZoneRow]) -> DayAxis:
    """An axis of a day, or as long as the starts of these zones need."""
    first, last = min(row.starts for row in rows), max(row.starts for row in rows)
    begin = first.replace(minute=0, second=0, microsecond=0)
    length = _SHORTEST
    while begin + length <= last + timedelta(hours=1):
        length += _STEP
    return DayAxis(begin, length)


def strip_blocks(rows: Sequence[ZoneRow], axis: DayAxis) -> list[StripBlock]:
    """A block for each zone at its start: zones east of Greenwich above the others, since the date line can bring two
    zones to the same moment. The progress of the zone's job fills it from below."""
    return [
        StripBlock(
            at=axis.place(row.starts),
            share=row.job["completedTokens"] / row.devices if row.devices else 0,
            tone=_TONES[row.shown.word],
            label=_describe(row),
            lane=int(not row.job["zone"].startswith("+")),
        )
        for row in rows
    ]


def _zone_row(zone: dict[str, Any], group: Json) -> ZoneRow:
    starts = known_time(zone["startsAt"])
    job = zone | {"createdAt": group["createdAt"], "updatedAt": zone["startsAt"]}
    return ZoneRow(job, show_job(job), starts)


def _describe(row: ZoneRow) -> str:
    done, planned = row.job["completedTokens"], row.devices
    share = f", {percent(done, planned)} of {planned:,} devices" if planned else ""
    return f"{zone_name(row.job['zone'])}, {row.shown.word}: starts {row.starts:%Y-%m-%d %H:%M} UTC{share}"


def _count_words(rows: Sequence[ZoneRow]) -> dict[str, int]:
    counts = Counter(row.shown.word for row in rows)
    return {word: counts[word] for word in _TONES if word in counts}


def _word_for_all(rows: Sequence[ZoneRow]) -> str:
    """One word for the whole push: the state that needs a person comes first, an ended one last."""
    words = _count_words(rows)
    order = ("tripped", "failed", "running", "paused", "waiting", "stopped", "expired", "completed")
    found = next(word for word in order if word in words)
    return "running" if found == "waiting" and "completed" in words else found


def _name_to_type(group: Json, app: Json | None) -> str:
    """The name that confirms stopping all. Zones that have not started are not counted yet, so any such zone asks for
    it."""
    is_large = group["totalTokens"] - group["completedTokens"] > MANY_DEVICES
    waits = any(row.shown.waits for row in zone_rows(group))
    return str(app["name"]) if app and (is_large or waits) else ""
