"""Remedies as they are typed: every word quoted for a POSIX shell, and no secret in any."""

import shlex
from collections.abc import Sequence

INIT = "carillon init"


def command(*words: str) -> str:
    """One command."""
    return shlex.join(words)


def chain(*commands: str) -> str:
    """Commands of which each needs the one before."""
    return " && ".join(commands)


def export(setting: str, value: str) -> str:
    """Another value of a setting, as `stream.url`, for what is started from this shell. (Elsewhere it goes where the
    deployment has its settings.)"""
    return f"export CARILLON_{setting.replace('.', '_').upper()}={shlex.quote(value)}"


def mongosh(url: str, user: str, script: str) -> str:
    """A script for MongoDB's shell, which asks for the password of a user."""
    login: Sequence[str] = ("--username", user) if user else ()
    return command("mongosh", url, *login, "--eval", script)


def psql(url: str, statement: str) -> str:
    """A statement for PostgreSQL, to be run as the owner of the tables."""
    return command("psql", url, "--command", statement)


def identifier(name: str) -> str:
    """A name in SQL."""
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
