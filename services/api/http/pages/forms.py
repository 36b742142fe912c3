"""Forms by declaration: each field names its place in the body of a request, its kind and its words once. From this
declaration the page draws the form, reads the body and fills the form.

A problem of the API names a field by its place in the body, so it is shown beside that field.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from services.api.http.pages.html import known_time, pretty
from services.api.http.pages.routes import (
    Form,
    read_instant,
    read_json,
    read_lines,
    read_number,
    read_pairs,
    read_whole,
)

Body = Mapping[str, Any]


class Kind(Struct, frozen=True):
    """The value of a field: `read` takes it out of a form (`None`: none was typed), `write` puts it back."""

    read: Callable[[Form, str], Any]
    write: Callable[[Any], str] = str
    type: str = "text"
    rows: int = 0  # of a text area; 0: one line


def _read_time(form: Form, name: str) -> str | None:
    at = read_instant(form, name)
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def _write_time(value: Any) -> str:
    at = known_time(value).replace(tzinfo=None)
    return at.isoformat(timespec="milliseconds" if at.microsecond else "seconds")


def _write_number(number: float) -> str:
    """All digits, because the form saves the shown value again."""
    return str(number).removesuffix(".0")


TEXT = Kind(lambda form, name: form.get(name, "").strip() or None)
TIME = Kind(_read_time, _write_time, type="datetime-local")  # in UTC
NUMBER = Kind(read_number, _write_number)
WHOLE = Kind(read_whole, _write_number)
JSON = Kind(read_json, pretty, rows=6)
LINES = Kind(lambda form, name: read_lines(form, name) or None, "\n".join, rows=4)
PAIRS = Kind(
    lambda form, name: read_pairs(form, name) or None,
    lambda pairs: "\n".join(f"{name}: {value}" for name, value in pairs.items()),
    rows=2,
)


class Field(Struct, frozen=True):
    """A value to type. `name` is its place in the body, with a dot before each inner field. `typed` is its name in the
    form, where another field of the form has that name."""

    name: str
    label: str
    kind: Kind = TEXT
    like: str = ""
    says: str = ""
    typed: str = ""

    @property
    def in_form(self) -> str:
        return self.typed or self.name


class Option(Struct, frozen=True):
    value: str
    label: str
    fields: tuple[Field, ...] = ()


class Choice(Struct, frozen=True):
    """Options of which one is chosen; only its fields count. The body has the chosen value under `name`, unless a field
    of the option is in that place. With `is_sent` false, only the form has the choice."""

    name: str
    options: tuple[Option, ...]
    is_sent: bool = True

    def chosen(self, form: Form) -> Option | None:
        return next((option for option in self.options if option.value == form.get(self.name)), None)

    def names_beside(self, form: Form) -> list[str]:
        """The names of fields that are not shown: a problem with one of them is told beside the choice."""
        chosen = self.chosen(form)
        return [self.name, *(field.name for option in self.options if option is not chosen for field in option.fields)]


class Sheet(Struct, frozen=True):
    """A part of a form. Fields in a tuple are in one line; a `folded` sheet opens if it has a problem."""

    title: str
    parts: tuple[Field | Choice | tuple[Field, ...], ...]
    is_folded: bool = False


def read_body(sheets: Sequence[Sheet], form: Form) -> dict[str, Any]:
    """The body that the form asks for, without what is empty. Raises `ApiProblem` for a field that cannot be read."""
    body: dict[str, Any] = {}
    for part in _parts(sheets):
        if isinstance(part, Field):
            _put(body, part.name, part.kind.read(form, part.in_form))
            continue
        chosen = part.chosen(form)
        for field in chosen.fields if chosen is not None else ():
            _put(body, field.name, field.kind.read(form, field.in_form))
        if part.is_sent and _find(body, part.name) is None:
            _put(body, part.name, form.get(part.name, ""))
    return body


def fill_form(sheets: Sequence[Sheet], thing: Body) -> dict[str, str]:
    """The fields of the form with the values of a thing."""
    form: dict[str, str] = {}
    for part in _parts(sheets):
        options = part.options if isinstance(part, Choice) else ()
        for field in [part] if isinstance(part, Field) else [field for option in options for field in option.fields]:
            value = _find(thing, field.name)
            form[field.in_form] = "" if value is None else field.kind.write(value)
        if isinstance(part, Choice):
            named = _find(thing, part.name)
            form[part.name] = next(
                option.value
                for option in part.options
                if option.value == named or any(_find(thing, field.name) is not None for field in option.fields)
            )
    return form


def _parts(sheets: Sequence[Sheet]) -> Iterator[Field | Choice]:
    for sheet in sheets:
        for part in sheet.parts:
            yield from part if isinstance(part, tuple) else [part]


def _find(thing: Body, name: str) -> Any:
    found: Any = thing
    for inner in name.split("."):
        found = found.get(inner) if isinstance(found, Mapping) else None
    return found


def _put(body: dict[str, Any], name: str, value: Any) -> None:
    """Put the value into its place, unless it is `None`; the objects around it are made in any case."""
    *outer, last = name.split(".")
    for inner in outer:
        body = body.setdefault(inner, {})
    if value is not None:
        body[last] = value
