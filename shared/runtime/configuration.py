"""Reads the settings, and prints them as their own manual.

The order of precedence rises from the defaults over a TOML file to the environment. `--config` or `CARILLON_CONFIG`
names the file. A variable is `CARILLON_<SECTION>_<FIELD>`; commas separate a list. A variable with `_FILE` at its end
names a file with the value, as orchestrators provide secrets. An unknown or invalid value is an error that names the
setting and its origin; a URL is never repeated, because it may hold a password.
"""

import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, Struct

from shared.core.errors import CarillonError, suggest
from shared.core.plain_words import read_mistake, read_typed_number
from shared.runtime.private import without_secrets
from shared.runtime.server_settings import RARELY, Section
from shared.runtime.settings import Settings

PREFIX = "CARILLON_"
IN_A_FILE = "_FILE"
CONFIG = "CARILLON_CONFIG"
OF_COMMAND_LINE = frozenset({"CARILLON_CONTEXT", "CARILLON_TARGET", "CARILLON_TOKEN"})
OTHER_VARIABLES = OF_COMMAND_LINE | {CONFIG, "CARILLON_FAULT", "CARILLON_FAULT_FILE", "CARILLON_CACHE"}
TEST_PREFIX = "CARILLON_TEST_"
WIDTH = 110
EXAMPLE = "CHANGE-ME"
"""The text in examples that a user must replace by a secret value."""


class Misconfigured(CarillonError):
    """Settings that cannot be used; the text has one line per fault."""


class _Given(Struct, frozen=True):
    value: Any
    origin: str


class SettingValue(Struct, frozen=True, kw_only=True):
    """A setting for display: values as TOML, without secrets."""

    name: str
    value: str
    default: str
    sentence: str
    rare: bool


_HINTS: dict[str, dict[str, Any]] = {
    name: get_type_hints(type(section), include_extras=True) for name, section in Settings().sections().items()
}


def load(environ: Mapping[str, str], path: str | Path | None = None) -> Settings:
    """The settings of a process. Raises `Misconfigured`, which lists all faults."""
    faults: list[str] = []
    given = _from_environment(environ, faults)
    if file := path or environ.get(CONFIG):
        given = _from_file(Path(file), faults) | given
    sections: dict[str, Any] = {
        name: _section(name, type(default), given, faults) for name, default in Settings().sections().items()
    }
    settings = Settings(**sections)
    faults += _weak_connections(settings)
    if faults:
        raise Misconfigured("\n".join(faults))
    return settings


def _weak_connections(settings: Settings) -> list[str]:
    if settings.tls.required == "nowhere":
        return []
    from shared.runtime.weaknesses import find_examples, find_weaknesses

    found = [*find_weaknesses(settings), *find_examples(settings)]
    return [f"{field}: {sentence} (tls.required)" for field, sentence in found]


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> dict[str, _Given]:
    variables = {_variable(key): key for key in _keys()}
    in_files = {variable + IN_A_FILE: key for variable, key in variables.items()}
    given: dict[str, _Given] = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES or variable.startswith(TEST_PREFIX):
            continue
        if variable in variables:
            key = variables[variable]
            given[key] = _Given(_from_text(key, environ[variable]), f"{variable} in the environment")
        elif variable in in_files:
            given |= _from_value_file(in_files[variable], variable, environ, faults)
        else:
            faults.append(f"{variable} in the environment: no such setting{suggest(variable, variables)}")
    return given


def _from_value_file(key: str, variable: str, environ: Mapping[str, str], faults: list[str]) -> dict[str, _Given]:
    """The value in the file that the variable names, without a line end."""
    if _variable(key) in environ:
        faults.append(f"{variable} and {_variable(key)} in the environment: one of them at most")
        return {}
    try:
        text = Path(environ[variable]).read_text("utf-8")
    except OSError as error:
        faults.append(f"{variable} in the environment: its file cannot be read: {error.strerror}")
        return {}
    except ValueError:
        faults.append(f"{variable} in the environment: its file is no text in UTF-8")
        return {}
    return {key: _Given(_from_text(key, text.rstrip("\r\n")), f"the file of {variable} in the environment")}


def _from_file(path: Path, faults: list[str]) -> dict[str, _Given]:
    try:
        tables = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        faults.append(f"{path}: cannot be read: {error}")
        return {}
    given: dict[str, _Given] = {}
    for section, table in tables.items():
        if section not in _HINTS or not isinstance(table, dict):
            faults.append(f"{path}: {section}: no such section{suggest(section, _HINTS)}")
            continue
        given |= {f"{section}.{field}": _Given(value, str(path)) for field, value in table.items()}
    unknown = sorted(given.keys() - set(_keys()))
    faults.extend(f"{path}: {key}: no such setting{suggest(key, _keys())}" for key in unknown)
    return given


def _section(name: str, kind: type[Section], given: Mapping[str, _Given], faults: list[str]) -> Section:
    """The section with the chosen values; a wrong one adds to `faults` and leaves its default."""
    values: dict[str, Any] = {}
    for field, hint in _HINTS[name].items():
        if chosen := given.get(f"{name}.{field}"):
            if isinstance(chosen.value, str) and EXAMPLE in chosen.value:
                rule = f"must not contain {EXAMPLE}: replace it with your own value"
                faults.append(f"{name}.{field} ({chosen.origin}): {rule}")
                continue
            try:
                value = chosen.value
                if isinstance(value, str) and (plain := _plain(hint)) in {int, float}:
                    value = read_typed_number(value, whole=plain is int)
                values[field] = msgspec.convert(value, hint, strict=False)
            except ValueError as error:  # msgspec's error is a ValueError, too
                what, _ = read_mistake(str(error), hint, subject="it")
                faults.append(f"{name}.{field} ({chosen.origin}): {what}")
    try:
        return kind(**values)
    except ValueError as error:
        faults.append(f"{name}.{error}")
        return kind()


def _from_text(key: str, text: str) -> Any:
    section, _, field = key.partition(".")
    if get_origin(_plain(_HINTS[section][field])) is tuple:
        return [entry.strip() for entry in text.split(",") if entry.strip()]
    return text


def describe(settings: Settings | None = None, *, rare: bool = True) -> str:
    """The settings (default: the defaults) as annotated TOML that `load` reads back. `rare` includes those that few
    deployments change.

    Passwords in URLs are written as they are: the result is a file to use, not a log.
    """
    chosen = settings or Settings()
    which = "Every setting of Carillon." if rare else "What an operator chooses; `carillon config --all` has the rest."
    head = _comment(
        f"{which} A file needs only what it changes; the variable named above a setting overrides "
        "it; with _FILE behind its name, it names a file that holds the value."
    )
    return "\n".join([head, *(_table(name, section, rare=rare) for name, section in chosen.sections().items())])


def list_settings(settings: Settings) -> list[SettingValue]:
    defaults = Settings().sections()
    return [
        SettingValue(
            name=f"{name}.{field}",
            value=_mask(field, getattr(section, field)),
            default=_mask(field, getattr(defaults[name], field)),
            sentence=_sentence(hint),
            rare=_is_rare(hint),
        )
        for name, section in settings.sections().items()
        for field, hint in _HINTS[name].items()
    ]


def _mask(field: str, value: Any) -> str:
    return without_secrets(f"{field} = {_toml(value)}").partition(" = ")[2]


def _table(name: str, section: Section, *, rare: bool) -> str:
    lines = ["", _comment(str(type(section).__doc__)), f"[{name}]"]
    for field, hint in _HINTS[name].items():
        if not rare and _is_rare(hint):
            continue
        key = f"{name}.{field}"
        lines += [
            _comment(f"{_sentence(hint)} ({_variable(key)})"),
            f"{field} = {_toml(getattr(section, field))}",
        ]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)


def _sentence(hint: Any) -> str:
    """The sentence of a setting, with the valid values if its type limits them."""
    told = next(meta.description for meta in _metas(hint) if meta.description)
    if get_origin(_plain(hint)) is Literal:
        return f"{told} One of {', '.join(get_args(_plain(hint)))}."
    bounds = next((f" From {meta.ge} to {meta.le}." for meta in _metas(hint) if meta.ge is not None), "")
    return told + bounds


def _is_rare(hint: Any) -> bool:
    return any((meta.extra or {}).get(RARELY) for meta in _metas(hint))


def _toml(value: Any) -> str:
    """A value as TOML. JSON strings are TOML strings, except that TOML wants DEL escaped."""
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(entry) for entry in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _keys() -> list[str]:
    return [f"{section}.{field}" for section, hints in _HINTS.items() for field in hints]


def _metas(hint: Any) -> Iterator[Meta]:
    return (meta for meta in get_args(hint)[1:] if isinstance(meta, Meta))


def _plain(hint: Any) -> Any:
    return get_args(hint)[0]


def _variable(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()
