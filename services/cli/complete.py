"""Completion with names from the API. Without an answer within a second there is no completion."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from services.cli.output import visible

if TYPE_CHECKING:
    from services.cli.session import Session

MOST = 50
_SAFE_NAME = re.compile(r"[A-Za-z0-9._~:@+][A-Za-z0-9._~:@+-]*")
"""A name that a shell takes as one word, and this program as no option: bash inserts it as it is."""

Names = Iterable[tuple[str, str]]
"""Names, each with a description."""

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def contexts(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from services.cli.contexts import read_contexts
    from shared.runtime.private import without_secrets

    try:
        found = read_contexts().contexts
    except click.ClickException:
        return []
    return _offer(((name, without_secrets(each.url)) for name, each in found.items()), incomplete)


def of(look: "Callable[[Session, str], Names]") -> Complete:
    """Complete with names from the API, each with a description."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from services.cli.session import Session, read_common_options

        session = Session(read_common_options(ctx), patient=False)
        try:
            return _offer(look(session, incomplete), incomplete)
        except Exception:  # noqa: BLE001 - a message would appear in the line that is being typed
            return []

    return complete


def _offer(names: Names, incomplete: str) -> list[CompletionItem]:
    """The names with this beginning, except those that a shell may take for more than a word."""
    found = {name: word for name, word in names if name.startswith(incomplete) and _SAFE_NAME.fullmatch(name)}
    return [CompletionItem(name, help=visible(word)) for name, word in list(found.items())[:MOST]]


def _apps(session: "Session", _: str) -> Names:
    return ((app["name"], app["bundleId"]) for app in session.api.items("apps"))


def _jobs(session: "Session", _: str) -> Names:
    return ((job["id"], f"{job['app']['name']} {job['name']}") for job in _newest(session))


def _groups(session: "Session", _: str) -> Names:
    return ((job["jobGroupId"], job["name"]) for job in _newest(session) if job["zone"])


def _newest(session: "Session") -> Iterable[Any]:
    from services.cli.names import newest_jobs

    return newest_jobs(session, limit=MOST)


def _templates(session: "Session", _: str) -> Names:
    from services.cli.names import find_app

    return ((each["name"], each["locale"]) for each in session.api.items("apps", find_app(session), "templates"))


def _credentials(session: "Session", _: str) -> Names:
    from services.cli.names import find_app

    return ((each["name"], each["kind"]) for each in session.api.items("apps", find_app(session), "credentials"))


def _schedules(session: "Session", incomplete: str) -> Names:
    return ((each["key"], each["state"]) for each in session.api.items("schedules", prefix=incomplete, limit=MOST))


def _ids(*path: str, word: str) -> Complete:
    return of(lambda session, _: ((each["id"], str(each[word])) for each in session.api.items(*path, limit=MOST)))


def _calendars(session: "Session", _: str) -> Names:
    return ((each["name"], each["timezone"]) for each in session.api.items("calendars", limit=MOST))


apps, jobs, groups, templates, schedules = of(_apps), of(_jobs), of(_groups), of(_templates), of(_schedules)
calendars = of(_calendars)
credentials = of(_credentials)
dead_letters = _ids("dead-letters", word="key")
bulk = _ids("bulk-actions", word="act")
users = of(lambda session, _: ((user["email"], user["id"]) for user in session.api.items("users")))
tokens = of(lambda session, _: ((token["name"], token["id"]) for token in session.api.items("tokens")))
