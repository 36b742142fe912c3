"""Plain words for a wrong value, in place of msgspec's."""

import re

_MISTAKE = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)
_MISMATCH = re.compile(r"Expected `(?P<wanted>.+)`, got `(?P<got>.+?)`")
_RULE = re.compile(r"Expected `(?P<wanted>[^`]+)`(?P<rule> .+)", re.DOTALL)
_FIELD = re.compile(r"Object (?P<fault>missing required|contains unknown) field `(?P<name>.*)`", re.DOTALL)
_VALUE = re.compile(r"Invalid (?:enum )?value (?P<value>.+)", re.DOTALL)
_NAMES = {
    "array": "an array",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "null": "null",
    "object": "an object",
    "str": "a string",
}


def read_mistake(text: str) -> tuple[str, str]:
    """The sentence, and the path of the value that it is about; `""` for the whole body."""
    match = _MISTAKE.fullmatch(text)
    what, path = (match["what"], match["path"] or "") if match else (text, "")
    if field := _FIELD.fullmatch(what):
        name = f"{path}.{field['name']}" if path else field["name"]
        is_unknown = field["fault"] == "contains unknown"
        return f"there is no field {name!r}" if is_unknown else f"the field {name!r} is needed", name
    subject = path or "the body"
    if mismatch := _MISMATCH.fullmatch(what):
        return f"{subject} must be {_name(mismatch['wanted'])}, not {_name(mismatch['got'])}", path
    if rule := _RULE.fullmatch(what):
        return f"{subject} must be {_name(rule['wanted'])}{rule['rule'].replace('`', '')}", path
    if value := _VALUE.fullmatch(what):
        return f"{subject} cannot be {value['value']}", path
    return what, path


def _name(kinds: str) -> str:
    return " or ".join(_NAMES.get(kind, kind) for kind in kinds.split(" | ") if kind != "null" or kinds == "null")
