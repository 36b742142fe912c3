"""Reads the form of a new job: what was typed, as the API's body has it, and what is said of it before it is made."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from services.api.http.pages.typed import (
    EMPTY_OBJECT,
    read_instant,
    read_json,
    read_number,
    read_object,
    read_whole,
    refuse,
)
from services.api.http.pages.visits import Visit
from shared.domain.instants import ns

NOW, AT, LOCALIZED = "now", "at", "localized"
BY_ACCOUNT = "credential"
FILTER, WANTED = "filter-column", "filter-value"
BLANK_ROWS = 2

_OWN = {"named", "key"}
_DRY_RUN = "dryRun"
_COUNTS = (("audience", "devices", "estimatedDevices"), ("messages", "recipients", "estimatedRecipients"))
_ACCOUNT_TEXTS = (
    "credential", "recipientColumn", "list", "locale", "defaultRegion", "duplicates", "onUnknown",
)  # fmt: skip

Filters = list[tuple[str, str]]


def read_names(visit: Visit) -> str:
    """The names of the chosen templates, as the API takes them. Raises `ApiProblem` for none, and for one that a job
    cannot name."""
    names = [*visit.lists.get("template", ()), *visit.read_field("templates").split(",")]
    chosen = [name for name in dict.fromkeys(names) if name]
    if not chosen:
        raise refuse("template", "choose at least one template")
    if any("," in name for name in visit.lists.get("template", ())):
        raise refuse("template", "a template with a comma in its name cannot be sent")
    return ",".join(chosen)


def read_filters(visit: Visit) -> Filters:
    rows = zip(visit.lists.get(FILTER, ()), visit.lists.get(WANTED, ()), strict=False)
    stripped = ((column.strip(), value.strip()) for column, value in rows)
    return [(column, value) for column, value in stripped if column or value]


def blank_rows(filters: Filters) -> Filters:
    return filters + [("", "")] * max(BLANK_ROWS, 3 - len(filters))


def read_job(visit: Visit) -> dict[str, Any]:
    """The body of the job. Raises `ApiProblem` for the first field that cannot be read."""
    when = visit.read_field("when") or NOW
    body = _read_sender(visit) | {
        "name": visit.read_field("name"),
        "filters": _read_columns(visit),
        "csvPath": visit.read_field("csvPath"),
        "context": read_object(visit.form, "context") or EMPTY_OBJECT,
        "metadata": _read_metadata(visit),
        "startsAt": 0 if when == NOW else _read_ns(visit, "startsAt"),
        "localized": when == LOCALIZED,
        "pastTimeStrategy": visit.read_field("pastTimeStrategy") if when == LOCALIZED else "",
        "expiresAt": _read_ns(visit, "expiresAt"),
    }
    if when != NOW and not body["startsAt"]:
        raise refuse("startsAt", "type the time of the start")
    return body


def keep_typed(visit: Visit) -> Iterable[tuple[str, str]]:
    for name, values in visit.lists.items():
        if name not in _OWN:
            yield from ((name, value) for value in values)


def count_reached(preview: dict[str, Any]) -> int | None:
    """The estimated devices of a push, or recipients of an account's job; `None` if unknown."""
    for part, things, estimate in _COUNTS:
        if counted := preview[part]:
            reached: int | None = counted[things if counted["exact"] else estimate]
            return reached
    return None


def _read_sender(visit: Visit) -> dict[str, Any]:
    """The sender and its fields. Fields of the other kind of sender are left out."""
    if visit.read_field("sender") != BY_ACCOUNT:
        return {"service": visit.read_field("service"), "controlGroup": _read_share(visit)}
    given: dict[str, Any] = {name: visit.read_field(name) for name in _ACCOUNT_TEXTS}
    if not given["credential"]:
        raise refuse("credential", "choose an account")
    given |= {"share": read_number(visit.form, "share"), "maxRecipients": read_whole(visit.form, "maxRecipients")}
    given |= {"haltOn": read_json(visit.form, "haltOn"), "transactional": bool(visit.read_field("transactional"))}
    return {name: value for name, value in given.items() if value not in (None, "")}


def _read_columns(visit: Visit) -> dict[str, str]:
    columns: dict[str, str] = {}
    for column, value in read_filters(visit):
        if not column:
            raise refuse("filters", f"name the column of {value!r}")
        if column in columns:
            raise refuse("filters", f"{column} has two rows: write its values in one row, separated by commas")
        columns[column] = value
    return columns


def _read_metadata(visit: Visit) -> msgspec.Raw:
    metadata = read_object(visit.form, "metadata") or EMPTY_OBJECT
    if not visit.read_field(_DRY_RUN):
        return metadata
    if json.loads(bytes(metadata)).get(_DRY_RUN) is True:
        return metadata
    # Put in as text: the API refuses what is wrong in the rest.
    rest = bytes(metadata).removeprefix(b"{").lstrip()
    return msgspec.Raw(b'{"%s": true%s' % (_DRY_RUN.encode(), rest if rest == b"}" else b", " + rest))


def _read_ns(visit: Visit, field: str) -> int:
    at = read_instant(visit.form, field)
    return ns(at) if at else 0


def _read_share(visit: Visit) -> float:
    percent = read_number({"controlGroup": visit.read_field("controlGroup").removesuffix("%")}, "controlGroup") or 0
    if not 0 <= percent < 100:
        raise refuse("controlGroup", "it must be at least 0 and less than 100")
    return percent / 100
