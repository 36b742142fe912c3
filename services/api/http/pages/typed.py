"""Fields of a form as values of the API. A value that no route can take is refused here, beside its field.

An empty field is `None`, or an empty list or dictionary. `form` has the last text of each field by its name.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn

import msgspec

from services.api.http.pages.inner import ApiProblem
from services.api.http.pages.routes import Moved
from services.api.http.pages.visits import Visit
from shared.domain.plain_words import describe_json_fault, read_typed_number

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
    """An instant, by default in UTC. Raises `ApiProblem`."""
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
            raise refuse(field, f"{name.strip()!r} stands on two lines, and only one value can count: remove one")
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
