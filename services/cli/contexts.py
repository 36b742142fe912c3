"""The deployments that a person works with, in `contexts.toml`, which only the owner may read."""

import os
import stat
import tomllib
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from services.cli.exits import Exit, Failure
from shared.domain.plain_words import read_mistake

FILE = "contexts.toml"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class KnownDeployment(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The address of a deployment, the caller, and the default app."""

    url: str
    token: str = ""
    token_command: str = ""
    user: str = ""
    app: str = ""


class ContextsFile(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The file: the contexts by name, and the current one."""

    current: str = ""
    contexts: dict[str, KnownDeployment] = {}


def contexts_path() -> Path:
    """The path of the file, which may not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or ""
    folder = Path(home) if Path(home).is_absolute() else Path.home() / ".config"
    return folder / "carillon" / FILE


def read_contexts() -> ContextsFile:
    """The contexts; none if there is no file."""
    path = contexts_path()
    try:
        with path.open("rb") as file:
            _check_private(path, os.fstat(file.fileno()))
            return msgspec.convert(tomllib.load(file), ContextsFile)
    except FileNotFoundError:
        return ContextsFile()
    except msgspec.ValidationError as error:
        mistake, _ = read_mistake(str(error), ContextsFile, subject="the file")
        raise Failure(Exit.COMMAND_LINE, f"{path} cannot be read: {mistake}") from None
    except (OSError, ValueError) as error:
        raise Failure(Exit.COMMAND_LINE, f"{path} cannot be read: {error}") from None


def write_contexts(contexts: ContextsFile) -> None:
    """Replace the file atomically."""
    path = contexts_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(_toml(contexts))
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _check_private(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
        advice = f"Close it: chmod 600 {path}"
        raise Failure(Exit.COMMAND_LINE, f"{path} holds credentials, and others may read or write it.", advice)


def _toml(contexts: ContextsFile) -> str:
    """As TOML: `tomllib` only reads."""
    lines = [f"current = {_quote(contexts.current)}\n"] if contexts.current else []
    for name, deployment in contexts.contexts.items():
        lines.append(f"[contexts.{_quote(name)}]")
        lines += [f"{field} = {_quote(value)}" for field, value in asdict(deployment).items() if value]
        lines.append("")
    return "\n".join(lines)


def _quote(text: str) -> str:
    """A JSON string is a TOML string, except for DEL."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")
