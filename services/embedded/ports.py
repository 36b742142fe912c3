"""Ports to listen on: whether they are free, before anything is started that would have to be ended again."""

import errno
import socket
from collections.abc import Collection

from msgspec.structs import replace

from shared.domain.errors import Conflict, Unavailable
from shared.runtime.settings import Settings


def check_ports(settings: Settings, names: Collection[str]) -> None:
    """Raise `Conflict` unless the ports of these sections (`api`, `health`) are free."""
    for name in names:
        section = getattr(settings, name)
        if not is_free(section.host, section.port):
            raise Conflict(f"{name}.port: {section.host}:{section.port} is taken; 0 takes a free one")


def choose_ports(settings: Settings, *, asked: Collection[str]) -> tuple[Settings, list[str]]:
    """The settings with free ports in the places of taken ones, and a sentence for each.

    `asked` names the sections whose port somebody chose on purpose. Raises `Conflict` for one of these that is taken.
    """
    check_ports(settings, asked)
    notes: list[str] = []
    for name in ("api", "health"):
        section = getattr(settings, name)
        if not is_free(section.host, section.port):
            notes.append(f"Port {section.port} is taken: {name} gets a free one.")
            settings = replace(settings, **{name: replace(section, port=0)})
    return settings, notes


def is_free(host: str, port: int) -> bool:
    """Whether we could listen there. Raises `Unavailable` for an address that is not this machine's."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return True
