"""The deployment that a verb asks: contexts by name, and the order in which a deployment is found."""

import os
import re
import stat
import subprocess
import tomllib
from pathlib import Path

import click
import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from services.cli.exits import Exit, Failure
from shared.core.plain_words import read_mistake

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


CONTEXT = "CARILLON_CONTEXT"
TARGET = "CARILLON_TARGET"
TOKEN = "CARILLON_TOKEN"
DATA_FOLDER = "CARILLON_EMBEDDED_DATA_DIR"
UP = "up"
_TOKEN_SECONDS = 60
_LOOPBACK = re.compile(r"https?://(127(\.[0-9]{1,3}){3}|localhost|\[::1\])(:[0-9]{1,5})?/?")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class FoundDeployment(Struct, frozen=True):
    """A deployment, and what named it."""

    named_by: str
    deployment: KnownDeployment


class _Running(Struct, frozen=True):
    """The fields that are read of `running.json` (`services.embedded.instance`)."""

    process: "_Mark"
    api: str
    admin: str


class _Mark(Struct, frozen=True):
    pid: int
    born: str


def find_deployment(context: str = "", *, config: Path | None = None) -> FoundDeployment:
    token = os.environ.get(TOKEN, "")
    found = _find_named(context) or _find_running(config)
    if found is None:
        raise click.UsageError(
            "no deployment is named. Store its address: `carillon context add NAME --url URL`. Or set CARILLON_TARGET "
            "to its URL, or run `carillon up` in this folder."
        )
    if not token:
        return found
    return FoundDeployment(found.named_by, replace(found.deployment, token=token, token_command="", user=""))


def token_of(deployment: KnownDeployment) -> str:
    """The token, which a command may have to print."""
    if deployment.token or not deployment.token_command:
        return deployment.token
    try:
        printed = subprocess.run(  # noqa: S602 - the owner's words, from a file that no other user may write
            deployment.token_command,
            shell=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TOKEN_SECONDS,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise Failure(Exit.FAILED, f"token_command failed: {error}") from None
    if not printed:
        raise Failure(Exit.FAILED, "token_command printed no token")
    return printed


def _find_named(context: str) -> FoundDeployment | None:
    named, target = os.environ.get(CONTEXT, ""), os.environ.get(TARGET, "")
    if context:
        return _read(context, "--context")
    if named and target:
        raise click.UsageError(f"{CONTEXT} and {TARGET} are both set: unset one of them")
    if target:
        return FoundDeployment(TARGET, KnownDeployment(url=target))
    if named:
        return _read(named, CONTEXT)
    current = read_contexts().current
    return _read(current, str(contexts_path())) if current else None


def _read(name: str, named_by: str) -> FoundDeployment:
    contexts = read_contexts().contexts
    if name not in contexts:
        known = ", ".join(sorted(contexts)) or "none"
        raise click.UsageError(f"there is no context {name!r}, which {named_by} names. Contexts: {known}")
    return FoundDeployment(name, contexts[name])


def _find_running(config: Path | None) -> FoundDeployment | None:
    """The embedded Carillon that runs on the data folder, if any. It gets the user's token, so a file is ignored if
    another user may have written it, or if it names another machine."""
    try:
        instance = msgspec.json.decode(_read_own(_data_folder(config), "running.json"), type=_Running)
    except (OSError, msgspec.DecodeError):
        return None
    if not _LOOPBACK.fullmatch(instance.api):
        return None
    from services.embedded.processes import ProcessMark, is_alive

    if not is_alive(ProcessMark(instance.process.pid, instance.process.born)):
        return None
    return FoundDeployment(UP, KnownDeployment(url=instance.api, user=instance.admin))


def _read_own(folder: Path, name: str) -> bytes:
    """The content of the file. Raises `OSError` also if a user other than root may write the file or the folder."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _check_own(opened)
        # Without O_NONBLOCK a pipe in the file's place would block.
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NONBLOCK, dir_fd=opened), "rb") as file:
            _check_own(file.fileno())
            return file.read()
    finally:
        os.close(opened)


def _check_own(opened: int) -> None:
    found = os.fstat(opened)
    if found.st_uid not in {os.geteuid(), 0} or found.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError("others may write it")


def _data_folder(config: Path | None) -> Path:
    """The folder of `carillon up`. Loading the settings takes a while, and is seldom needed."""
    if config is None and "CARILLON_CONFIG" not in os.environ:
        return Path(os.environ.get(DATA_FOLDER) or ".carillon")
    from shared.runtime import configuration

    return Path(configuration.load(os.environ, config).embedded.data_dir)
