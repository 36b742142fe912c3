"""Finding things by typed text: a whole id, its beginning or end, an id as tables shorten it, or a name."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import click

from services.cli.exits import Exit, Failure
from services.cli.job_shape import state_of
from services.cli.output import ELLIPSIS, Json, visible
from services.cli.session import Session
from shared.core.errors import suggest

UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
SEARCHED = 5_000
SHOWN = 5
TAIL = 4
"""The fewest characters of an id's end that may be typed."""


def matches(typed: str, id: str) -> bool:
    """Whether the typed text may mean this id: its beginning, or its beginning and end as a table shows it, ignoring
    the case of UUIDs."""
    typed = typed.lower() if UUID.fullmatch(id) else typed
    head, shortened, tail = typed.replace("...", ELLIPSIS).partition(ELLIPSIS)
    return id.startswith(head) and (not shortened or id.endswith(tail))


def pick(
    typed: str,
    things: Iterable[Json],
    *,
    what: str,
    names: Sequence[str] = ("id",),
    see: str = "",
    about: Callable[[Json], str] | None = None,
) -> Json:
    """The only thing that is meant. The first of `names` is the field of the id; the others must match except for case.
    The end of an id counts only if no id begins so, because ids of one minute begin alike."""
    id, *others = names
    found: dict[str, Json] = {}
    ended: dict[str, Json] = {}
    known: dict[str, None] = {}
    for thing in things:
        if thing[id] == typed:
            return thing
        known |= dict.fromkeys(str(thing[name]) for name in others)
        if any(str(thing[name]).casefold() == typed.casefold() for name in others) or matches(typed, str(thing[id])):
            found[str(thing[id])] = thing
        elif len(typed) >= TAIL and str(thing[id]).endswith(typed):
            ended[str(thing[id])] = thing
    found = found or ended
    if not found:
        end = suggest(typed, known) or "."
        raise Failure(Exit.NOT_FOUND, f"There is no {what} {visible(typed)!r}{visible(end)}", see)
    named = [thing for thing in found.values() if any(str(thing[name]) == typed for name in others)]
    if len(named) == 1:
        return named[0]
    if len(found) > 1:
        describe = about or (lambda thing: " ".join(str(thing[name]) for name in others))
        lines = [f"  {visible(each)}  {visible(describe(thing))}".rstrip() for each, thing in found.items()][:SHOWN]
        more = [f"  and {len(found) - SHOWN} more"] if len(found) > SHOWN else []
        sentence = f"{visible(typed)!r} may mean {len(found)} {what}s:"
        advice = f"Type more of the id, or the last {TAIL} characters or more of it."
        if id != "id":
            advice = f"Type more of the {id}."
        raise click.UsageError("\n".join([sentence, *lines, *more, advice]))
    return next(iter(found.values()))


def find_app(session: Session, typed: str = "") -> str:
    """The id of the app that is named here, by `--app`, or by the context; the only one if none is named."""
    wanted = typed or session.app
    if not wanted:
        found = [*session.api.items("apps", limit=SHOWN + 1)]
        if len(found) == 1:
            return str(found[0]["id"])
        if not found:
            raise click.UsageError("there is no app yet: `carillon apps create` makes one")
        known = ", ".join(visible(app["name"]) for app in found[:SHOWN]) + (", …" if len(found) > SHOWN else "")
        advice = "name one by --app, or keep a default by `carillon context add … --default-app`"
        raise click.UsageError(f"no app is named, and there are {known}: {advice}")
    if UUID.fullmatch(wanted):
        return wanted
    see = "`carillon apps list` shows them."
    return str(pick(wanted, session.api.items("apps"), what="app", names=("id", "name"), see=see)["id"])


def find_job(session: Session, typed: str, *, among: Collection[str] = ()) -> tuple[str, str]:
    """The app's id and the job's. A name means a job in one of the states in `among`, if any."""
    if session.app and UUID.fullmatch(typed):
        return find_app(session), typed
    see = f"{_how_to_name('job')} `carillon groups show` shows a localized push."
    jobs = [*newest_jobs(session, limit=SEARCHED)]
    job = _pick_among(among, typed, jobs, what="job", names=("id", "name", "templateName"), see=see, about=_about_job)
    return str(job["appId"]), str(job["id"])


def find_group(session: Session, typed: str, *, among: Collection[str] = ()) -> tuple[str, str]:
    """The app's id and the group's. A name means a group with a job in one of the states in `among`, if any."""
    if session.app and UUID.fullmatch(typed):
        return find_app(session), typed
    zones = [job for job in newest_jobs(session, limit=SEARCHED) if job["zone"]]
    names, see = ("jobGroupId", "name", "templateName"), _how_to_name("group")
    job = _pick_among(among, typed, zones, what="group", names=names, see=see, about=lambda job: str(job["name"]))
    return str(job["appId"]), str(job["jobGroupId"])


def _pick_among(states: Collection[str], typed: str, jobs: Sequence[Json], **how: Any) -> Json:
    """The thing that is meant among those in these states, or among all if none is."""
    if states:
        try:
            return pick(typed, [job for job in jobs if state_of(job) in states], **how)
        except Failure:
            pass
    return pick(typed, jobs, **how)


def find_template(session: Session, app_id: str, typed: str, locale: str = "") -> Json:
    """A template by its id or the beginning of it, or by name and locale."""
    templates = (
        each for each in session.api.items("apps", app_id, "templates") if not locale or each["locale"] == locale
    )
    see = "`carillon templates list` shows them; --locale tells those of one name apart."
    return pick(typed, templates, what="template", names=("id", "name"), see=see)


def find_schedule(session: Session, typed: str, **query: Any) -> str:
    """The key of the schedule with this key, or of the only one that begins so."""
    head = typed.replace("...", ELLIPSIS).partition(ELLIPSIS)[0]
    found = session.api.items("schedules", prefix=head, limit=SEARCHED, **query)
    return str(pick(typed, found, what="schedule", names=("key",), see="`carillon schedules list` shows them.")["key"])


def find_listed(
    session: Session, typed: str, *path: str, what: str, names: Sequence[str] = ("id",), noun: str = "", **query: Any
) -> Json:
    see = f"`carillon {noun or '-'.join(path)} list` shows them."
    return pick(typed, session.api.items(*path, **query), what=what, names=names, see=see)


def newest_jobs(
    session: Session,
    *,
    limit: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    grouped: bool = False,
    **query: Any,
) -> Iterator[Json]:
    """The jobs of the named app, or of all, newest first, made from `since` to before `until`. With `grouped`, a
    localized push counts as one."""
    app_id = find_app(session) if session.app else None
    times = {"since": since and since.isoformat(), "until": until and until.isoformat()}
    flags = {"grouped": "true"} if grouped else {}
    return session.api.items("jobs", app=app_id, limit=limit, **times, **flags, **query)


def _about_job(job: Json) -> str:
    return " ".join(word for word in (job["name"], job["zone"], state_of(job)) if word)


def _how_to_name(what: str) -> str:
    return f"The newest {SEARCHED:,} jobs were looked through: an older {what} is found by its whole id and --app."
