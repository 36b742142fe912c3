"""What is done to the stack as a whole, and what a chaos test does to one server of it."""

import os
import shutil
import signal
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

from services.embedded import processes
from tests.stack import places
from tests.stack.endpoints import Endpoints
from tests.stack.kafka import KafkaServer
from tests.stack.mongodb import URL_VARIABLE, MongoServer, mongo_answers
from tests.stack.postgresql import PostgresServer
from tests.stack.rabbitmq import RabbitServer
from tests.stack.s3 import S3Server
from tests.stack.server import Missing, Server, bring_up, take_down

# The brokers would take seconds to put away what is thrown away; PostgreSQL would wait for its clients at SIGTERM.
_END_FOR_GOOD = {"kafka": signal.SIGKILL, "rabbitmq": signal.SIGKILL, "postgres": signal.SIGINT}
NAMES = ("mongo", "rabbitmq", "postgres", "kafka", "s3")
_STOPPED_BY_LAST_SESSION = "stop-when-unused"


def servers() -> dict[str, Server]:
    """The servers that are ours, by name, slowest to start first."""
    found: list[Server] = [KafkaServer(), RabbitServer(), PostgresServer(), MongoServer(), S3Server()]
    return {server.name: server for server in found if server.name != "mongo" or not os.environ.get(URL_VARIABLE)}


def ensure(*names: str) -> Endpoints:
    """Start what does not run (of the named servers, if any), leave alone what is healthy, say where everything is."""
    with places.sole_starter():
        return _ensure(names)


def _ensure(names: Collection[str] = ()) -> Endpoints:
    ours = {name: server for name, server in servers().items() if not names or name in names}
    with ThreadPoolExecutor(len(ours) or 1) as pool:
        reasons = dict(zip(ours, pool.map(_try_bring_up, ours.values()), strict=True))
    return _endpoints(ours, {name: reason for name, reason in reasons.items() if reason})


def _try_bring_up(server: Server) -> str | None:
    """Why it cannot be had, or None."""
    try:
        bring_up(server, may_wipe=True)
    except (Missing, RuntimeError, OSError) as reason:
        places.say(f"{server.name}: MISSING: {reason}")
        return str(reason)
    return None


def _endpoints(ours: dict[str, Server], missing: dict[str, str]) -> Endpoints:
    here = {name: server for name, server in ours.items() if name not in missing}
    addresses = {key: url for server in here.values() for key, url in server.addresses(server.ports()).items()}
    if url := os.environ.get(URL_VARIABLE):
        addresses["mongo_url"] = url
        if not mongo_answers(url):
            missing = missing | {"mongo": f"{URL_VARIABLE} names a server that does not answer"}
    pids = {name: mark.pid for name, server in here.items() if (mark := server.mark())}
    return Endpoints(addresses=addresses, missing=missing, pids=pids)


def status() -> Endpoints:
    """The servers that run and are healthy now; starts nothing."""
    ours = servers()
    dead = {name: "not running" for name, server in ours.items() if not _is_up(server)}
    return _endpoints(ours, dead)


def _is_up(server: Server) -> bool:
    ready = server.mark() is not None and server.ready_file.exists() and server.has_all_ports()
    return ready and server.healthy(server.ports())


def down() -> None:
    """End every server of this checkout, also those that dead starters and workers left, and forget their data."""
    for home in places.homes():
        with places.at(home), places.sole_starter():
            _down()


def _down() -> None:
    marked = sorted(places.home().glob("*/mark.json"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(_end_marked, [file.parent.name for file in marked if file.parent.name != "epmd"]))
    _end_marked("epmd")  # last: the broker tells it that it leaves
    for file in marked:
        shutil.rmtree(file.parent, ignore_errors=True)
    (places.home() / _STOPPED_BY_LAST_SESSION).unlink(missing_ok=True)


def _end_marked(key: str) -> None:
    mark = processes.read_mark(places.home() / key / "mark.json")
    if mark is not None and processes.is_alive(mark):
        processes.end(mark, grace_seconds=10.0, first=_END_FOR_GOOD.get(key, signal.SIGTERM))
        places.say(f"{key}: stopped")


def restart(name: str, *, kill_it: bool = False) -> None:
    """End the server (`kill_it`: by SIGKILL) and start it on the same port with the same data; returns when healthy."""
    with places.sole_starter():
        take_down(_server(name), first=signal.SIGKILL if kill_it else None)
        bring_up(_server(name), may_wipe=False)


def kill(name: str) -> None:
    """SIGKILL to the server and its children; returns when they are gone."""
    take_down(_server(name), first=signal.SIGKILL)


def stop(name: str) -> None:
    """Ask the server to end, and see that it does."""
    take_down(_server(name))


def start(name: str) -> None:
    """Start a server that was killed or stopped, on the same port with the same data; returns when healthy."""
    with places.sole_starter():
        bring_up(_server(name), may_wipe=False)


def pause(name: str) -> None:
    """Freeze every process of the server (SIGSTOP): its connections stay open and nothing is answered."""
    _signal(name, signal.SIGSTOP)


def unpause(name: str) -> None:
    """Let it go on (SIGCONT)."""
    _signal(name, signal.SIGCONT)


def _signal(name: str, number: signal.Signals) -> None:
    mark = _server(name).mark()
    if mark is None:
        raise LookupError(f"{name} does not run")
    processes.signal_all(processes.family(mark), number)


def pid(name: str) -> int | None:
    """The process of the server now, or None if it does not run."""
    mark = _server(name).mark()
    return mark.pid if mark else None


def log_text(name: str) -> str:
    """All that the server has said since its data were made."""
    return _server(name).log.read_text(errors="replace")


def _server(name: str) -> Server:
    ours = servers()
    if name not in ours:
        raise LookupError(f"{name!r} is no server of ours; there are {', '.join(ours)}")
    return ours[name]


class Session:
    """A test session's use of the stack. The last to leave stops a stack that a session, not a person, started."""

    def __init__(self) -> None:
        self._use = places.InUse()
        with places.sole_starter():
            ran_before = any(server.mark() for server in servers().values())
            self.endpoints = _ensure()
            if not ran_before:
                (places.home() / _STOPPED_BY_LAST_SESSION).touch()

    def close(self) -> None:
        _end_if_unused(self._use)


def down_unused() -> None:
    """End what sessions started and nobody uses any more: a worker that was killed has closed nothing."""
    for home in places.homes():
        with places.at(home):
            _end_if_unused(places.InUse())


def _end_if_unused(use: places.InUse) -> None:
    with places.sole_starter():
        if use.leave() and (places.home() / _STOPPED_BY_LAST_SESSION).exists():
            _down()


def keep() -> None:
    """A person wants it: no test session is to stop it."""
    (places.home() / _STOPPED_BY_LAST_SESSION).unlink(missing_ok=True)
