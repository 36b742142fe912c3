"""Routes of pages: `PageRoute` shows a page, `FormRoute` does what a form asks; and the values that a form brings."""

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services.api.http.pages.visits import ApiProblem, Visit
from shared.core.plain_words import describe_json_fault, read_typed_number

_PAGE, _FORM = "page", "form"
Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])
Values = dict[str, Any]


class NavSection(Struct, frozen=True):
    """An entry of the navigation, below the heading `group`, or of the tabs of the section `under`: `path` is below
    `/ui`. `is_seen` tells to whom it is shown. Its badge counts the work of the kinds in `needs`."""

    label: str
    path: str
    order: int
    under: str = ""
    group: str = ""
    needs: tuple[str, ...] = ()
    is_seen: Callable[[Visit], bool] = lambda _: True


class PageRoute(Struct, frozen=True):
    """A page below `/ui`. `template` is `subject/name.html`: it lies in that subject's folder `pages`. The page asks
    for itself every `refresh_seconds`, never where that is 0; the value `refresh_seconds` that its method returns comes
    before this one, such as 0 for what has ended. `shared_by_roles` says that readers with the same roles see the same:
    then all of them share what a refresh reads."""

    path: str
    template: str
    refresh_seconds: float = 0
    shared_by_roles: bool = False

    def __call__(self, function: Function) -> Function:
        setattr(function, _PAGE, self)
        return function


class FormRoute(Struct, frozen=True):
    """The route of a form. `page` names the method of the page that contains it. With `acts`, there is one route for
    each of these verbs, at the end of `path`; the method reads `Visit.act`.

    A method that returns values shows them instead of moving on. `template` is a page of its own with them. With
    `fragment`, a preview, a script gets the fragment, and a browser without scripts gets the page.
    """

    path: str
    page: str = ""
    template: str = ""
    fragment: str = ""
    acts: tuple[str, ...] = ()

    def __call__(self, function: Function) -> Function:
        own = [replace(self, path=f"{self.path}/{act}") for act in self.acts] or [self]
        setattr(function, _FORM, [*getattr(function, _FORM, ()), *own])
        return function


class Moved(Struct, frozen=True):
    """The page that follows a form, a sentence of `SAID` that it shows, and a number for that sentence."""

    to: str
    said: str = ""
    count: int | None = None


SAID = {
    "saved": "Saved.",
    "made": "Created.",
    "deleted": "Deleted.",
    "paused": "Paused.",
    "resumed": "Resumed.",
    "stopped": "Stopped.",
    "retried": "Carillon tries it again now.",
    "retried-some": "Tried again: {count}.",
    "discarded-some": "Discarded: {count}.",
    "letters-left": "{count} could not be changed: they can only be discarded, an attempt is running, or someone else "
    "was first. The others are done.",
    "discarded": "Discarded.",
    "fired": "It fires now.",
    "cancelled": "Cancelled.",
    "revoked": "Revoked.",
    "ended": "Ended.",
    "sent": "Sent.",
    "begun": "Started. This page shows the progress.",
    "suspended": "Suspended. Its jobs wait.",
    "activated": "It sends again.",
    "tested": "The provider accepted the test message.",
    "secret-replaced": "The provider accepted the test message. The new secret is in use.",
    "retrying": "Sending again. This page shows the progress.",
    "suppressed-mail": "Suppressed by mail. Accounts of other channels still send to them.",
    "suppressed-sms": "Suppressed by SMS. Accounts of other channels still send to them.",
    "suppressed-push": "Suppressed by push. Accounts of other channels still send to them.",
    "suppressed-other": "Suppressed by the channel other. Accounts of other channels still send to them.",
    "suppressed-many": "Newly suppressed: {count}.",
    "suppression-deleted": "Lifted.",
    "forgotten": "Recipient erased from {count} messages.",
    "forgotten-some": "Recipient erased from {count} messages. There may be more: erase again.",
    "retried-of-more": "Tried again: {count}. There are more: press again to retry them.",
}
"""The sentences that a page can show after a form, by name. The address has the name, so no link can make a page say
anything else."""


class PageSet:
    """Pages that belong together. `section` is their entry in the navigation, which several sets may share. `tab` is
    their entry beside those of other subjects in one section. `glance` counts what needs attention, for the navigation,
    as far as that is known at once."""

    section: NavSection | None = None
    tab: NavSection | None = None
    glance: Callable[[], Awaitable[Mapping[str, int]]] | None = None

    def page_routes(self) -> list[tuple[PageRoute, Callable[[Visit], Awaitable[Values]]]]:
        return [(route, getattr(self, name)) for name, route in self._find_marked(_PAGE)]

    def form_routes(self) -> list[tuple[FormRoute, Callable[[Visit], Awaitable[Any]]]]:
        return [(form, getattr(self, name)) for name, forms in self._find_marked(_FORM) for form in forms]

    def page_of(self, form: FormRoute) -> tuple[PageRoute, Callable[[Visit], Awaitable[Values]]] | None:
        """The page with this form."""
        if not form.page:
            return None
        method = getattr(self, form.page)
        return getattr(method, _PAGE), method

    def _find_marked(self, kind: str) -> list[tuple[str, Any]]:
        marked = ((name, getattr(method, kind, None)) for name, method in vars(type(self)).items())
        return [(name, route) for name, route in marked if route is not None]


MANY_THINGS, MANY_DEVICES = 1_000, 100_000
"""A person who ends or sends something that concerns more than these types a name first."""
_MOST_CHOSEN = 1_000
_SAID_OF_SOME = {"retry": "retried-some", "discard": "discarded-some"}
EMPTY_OBJECT = msgspec.Raw(b"{}")
Form = Mapping[str, str]


def refuse(field: str, why: str) -> ApiProblem:
    return ApiProblem(HTTPStatus.UNPROCESSABLE_ENTITY, why, field)


def check_name(form: Form, name: str) -> None:
    """Raise `ApiProblem` unless this name was typed in the question of `ui.ask`; `""` needs none."""
    if name and form.get("named", "").strip() != name:
        raise refuse("named", f"type {name} to confirm")


def name_if_many(name: str, count: int) -> str:
    """The name that confirms an act on many things, `""` for few."""
    return name if count > MANY_THINGS else ""


async def act_on_chosen(visit: Visit, back: str, act: Callable[[str], Awaitable[Any]]) -> Moved:
    """Retry or discard the chosen rows of a list, and go `back`. A row that the API refuses does not stop the others.
    Raises `ApiProblem` if all are refused, or too many are chosen: then nothing is done."""
    chosen, refused = list(dict.fromkeys(visit.lists.get("chosen", []))), list[ApiProblem]()
    if not 1 <= len(chosen) <= _MOST_CHOSEN:
        why = f"choose up to {_MOST_CHOSEN:,} at a time" if chosen else "choose some of them first"
        raise refuse("chosen", why)
    for each in chosen:
        try:
            await act(each)
        except ApiProblem as problem:
            if not problem.is_refusal and problem.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
                raise
            refused.append(problem)
    if len(refused) == len(chosen):
        raise refused[0]
    return Moved(back, "letters-left" if refused else _SAID_OF_SOME[visit.act], len(refused) or len(chosen))


def read_number(form: Form, field: str, *, whole: bool = False) -> int | float | None:
    text = form.get(field, "").strip()
    try:
        return read_typed_number(text, whole=whole) if text else None
    except ValueError as error:
        raise refuse(field, str(error)) from None


read_whole = partial(read_number, whole=True)


def read_instant(form: Form, field: str) -> datetime | None:
    text = form.get(field, "").strip()
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise refuse(field, "an instant is needed, as in 2027-01-31T18:00") from None


def read_json(form: Form, field: str, *, is_object: bool = False) -> msgspec.Raw | None:
    """JSON as typed: the API reports mistakes in it, such as a repeated key. Raises `ApiProblem` if it is no JSON, or
    no object if `is_object`."""
    text = form.get(field, "").strip()
    if not text:
        return None
    if not isinstance(_decode(text, field), dict) and is_object:
        raise refuse(field, 'an object is needed, as in {"name": "Ana"}')
    return msgspec.Raw(text.encode("utf-8", "replace"))


read_object = partial(read_json, is_object=True)


def read_lines(form: Form, field: str) -> list[str]:
    return [line.strip() for line in form.get(field, "").splitlines() if line.strip()]


def read_pairs(form: Form, field: str) -> dict[str, str]:
    """A name and a value on each line. Raises `ApiProblem`."""
    pairs: dict[str, str] = {}
    for line in read_lines(form, field):
        name, found, value = line.partition(":")
        if not found:
            raise refuse(field, "each line is a name, ':' and a value")
        if name.strip() in pairs:
            raise refuse(field, f"{name.strip()!r} is on two lines, and only one value can count: remove one")
        pairs[name.strip()] = value.strip()
    return pairs


def _decode(text: str, field: str) -> object:
    try:
        return json.loads(text, parse_constant=partial(_refuse_constant, field))
    except json.JSONDecodeError as error:
        raise refuse(field, f"this is not JSON: {describe_json_fault(error)}") from None
    except (ValueError, RecursionError):
        raise refuse(field, "this is nested too deep, or has too long a number") from None


def _refuse_constant(field: str, name: str) -> NoReturn:
    raise refuse(field, f"this is not JSON: {name} is not a value of JSON")
