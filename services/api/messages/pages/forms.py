"""Reads the fields of an account's kind."""

from typing import Any

from services.api.http.pages.typed import read_lines, read_number, read_pairs
from services.api.http.pages.visits import Visit
from services.api.messages.pages.kinds import FieldShape, KindField


def read_kind_fields(visit: Visit, fields: tuple[KindField, ...]) -> dict[str, Any]:
    """The fields of a kind that were filled in, as the API takes them. Raises `ApiProblem`."""
    read = {field.name: _read_field(visit, field) for field in fields}
    return {name: value for name, value in read.items() if value not in (None, "", [], {})}


def read_secret(visit: Visit, parts: tuple[KindField, ...]) -> dict[str, str]:
    """The parts of a secret that were filled in."""
    read = {part.name: visit.read_field(f"secret.{part.name}") for part in parts}
    return {name: text for name, text in read.items() if text}


def show_kind_value(value: Any) -> str:
    """A stored value as it is typed."""
    match value:
        case None | False:
            return ""
        case dict():
            return "\n".join(f"{name}: {text}" for name, text in value.items())
        case list():
            return "\n".join(str(line) for line in value)
        case _:
            return str(value)


def _read_field(visit: Visit, field: KindField) -> Any:
    name = f"fields.{field.name}"
    match field.shape:
        case FieldShape.NUMBER:
            return read_number(visit.form, name)
        case FieldShape.FLAG:
            return bool(visit.read_field(name)) or None
        case FieldShape.LINES:
            return read_lines(visit.form, name)
        case FieldShape.PAIRS:
            return read_pairs(visit.form, name)
        case _:
            return visit.read_field(name)
