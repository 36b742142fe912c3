"""The real servers as fixtures. Each test gets a database, a vhost or a schema of its own, so tests run in any order,
and several workers (`tests.side_by_side`) may share the servers.

A test whose server this machine does not have is skipped, and the end of the run says so loudly; with CI=true it fails.
Nothing is connected to before a test asks for it.
"""

import gc
import json
import os
import secrets
import signal
import urllib.request
from base64 import b64encode
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import pytest
import structlog
from structlog.dev import ConsoleRenderer, plain_traceback
from xdist.remote import Producer

from tests import side_by_side, storms, tiers
from tests.clock.made import flow  # noqa: F401
from tests.ready_databases import ready_database, ready_databases, store  # noqa: F401
from tests.rows import Rows
from tests.security import tolls
from tests.stack import Endpoints, MissingPart
from tests.stack.server import run_apart
from tests.storms import seed, storm, storm_seconds  # noqa: F401  # fixtures; a test's own conftest imports all of these
from tests.streams import either_stream  # noqa: F401

_LONG_UP_SECONDS = 120
_DROP_MS = 5_000

_MISSED = "missing server"


@pytest.fixture(scope="session")
def stack(pytestconfig: pytest.Config) -> Iterator[Endpoints]:
    """The servers' addresses. A stack that this session started ends with the last session that uses it."""
    session = side_by_side.session_of(pytestconfig)
    yield session.endpoints
    session.close()


@pytest.fixture
def mongo_database(stack: Endpoints) -> Iterator[str]:
    """The URL of a database of the test's own, dropped afterwards."""
    name = _random_name()
    yield _with_path(stack.mongo_url, name)
    drop_mongo_database(stack.mongo_url, name)


@pytest.fixture
def rabbit_vhost(stack: Endpoints) -> Iterator[str]:
    """The AMQP URL of a vhost of the test's own, deleted afterwards."""
    name = _random_name()
    _manage(stack, "PUT", f"vhosts/{name}")
    _manage(stack, "PUT", f"permissions/{name}/guest", b'{"configure": ".*", "write": ".*", "read": ".*"}')
    yield _with_path(stack.rabbit_url, name)
    if _have_leaders(stack, name):
        _manage(stack, "DELETE", f"vhosts/{name}")


@pytest.fixture
def push_database(stack: Endpoints) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of the test's own, dropped afterwards."""
    name = _random_name()
    run_apart(_execute(stack.postgres_url, f'CREATE DATABASE "{name}"'))
    yield _with_path(stack.postgres_url, name)
    run_apart(_execute(stack.postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)'))


def drop_mongo_database(url: str, name: str) -> None:
    """Drop a database. A test that has failed may have left a transaction open, for which the server would wait for
    ever: it ends then."""
    import pymongo

    client: pymongo.MongoClient[dict[str, Any]]
    with pymongo.MongoClient(url, timeoutMS=_DROP_MS) as client:
        try:
            client.drop_database(name)
        except pymongo.errors.PyMongoError:
            client.admin.command("killAllSessions", [])
            client.drop_database(name)


def _random_name() -> str:
    return f"carillon_{secrets.token_hex(6)}"


def _with_path(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def _have_leaders(stack: Endpoints, vhost: str) -> bool:
    """Whether all quorum queues of a vhost have a leader, if RabbitMQ was restarted of late: its version 3.10 loses the
    supervisor of all dead-letter workers, and with it every test that follows, where a vhost goes that has one without.

    Its answer about leaders is no proof: a queue names one that has not been elected yet. Only a leader purges.
    """
    [node] = json.loads(_manage(stack, "GET", "nodes?columns=uptime"))
    if node and node["uptime"] > _LONG_UP_SECONDS * 1_000:  # it knows nothing of itself right after its start
        return True
    queues = json.loads(_manage(stack, "GET", f"queues/{vhost}?columns=name,type"))
    try:
        for queue in queues:
            if queue["type"] == "quorum":
                _manage(stack, "DELETE", f"queues/{vhost}/{quote(queue['name'], safe='')}/contents")
    except OSError:
        return False
    return True


def _manage(stack: Endpoints, method: str, path: str, body: bytes | None = None) -> bytes:
    url = urlsplit(stack.rabbit_management_url)
    target = urlunsplit((url.scheme, f"{url.hostname}:{url.port}", f"/api/{path}", "", ""))
    request = urllib.request.Request(target, data=body, method=method)
    request.add_header("Authorization", "Basic " + b64encode(f"{url.username}:{url.password}".encode()).decode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        content: bytes = answer.read()
    return content


async def _execute(url: str, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except MissingPart as missing:
        return _not_run(item, str(missing))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except MissingPart as missing:
        return _not_run(item, str(missing))


def _not_run(item: pytest.Item, reason: str) -> object:
    item.user_properties.append((_MISSED, reason))  # it comes with the report, whichever worker made it
    if os.environ.get("CI") == "true":
        pytest.fail(f"a server is missing: {reason}", pytrace=False)
    pytest.skip(f"a server is missing: {reason}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what attacks cost the API, and which tests did not run."""
    tolls.show(terminalreporter)
    _show_missed(terminalreporter)


def _show_missed(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests did not run for want of a server: a skip alone is easily overlooked."""
    missed: dict[str, dict[str, None]] = {}
    for outcome in ("skipped", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            for name, reason in getattr(report, "user_properties", ()):
                if name == _MISSED:
                    missed.setdefault(reason, {})[report.nodeid] = None
    if not missed:
        return
    terminalreporter.section("TESTS THAT DID NOT RUN: a server is missing", sep="!", red=True, bold=True)
    for reason, tests in missed.items():
        terminalreporter.write_line(reason, red=True)
        for test in tests:
            terminalreporter.write_line(f"    {test}")


def pytest_addoption(parser: pytest.Parser) -> None:
    storms.add_options(parser)
    tiers.add_options(parser)


def pytest_report_header(config: pytest.Config) -> str:
    return f"storms begin with --seed={storms.seed_of(config)}"


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # until the tests are collected
    # A process that a shell starts in the background ignores Ctrl-C, and so would all processes that tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Rich would show the variables of every frame of each exception that is logged, which takes a tenth of a second.
    shown = ConsoleRenderer(colors=False, exception_formatter=plain_traceback)
    structlog.configure(processors=[*structlog.get_config()["processors"][:-1], shown])
    tiers.configure(config)
    side_by_side.settle_in(config)


def pytest_unconfigure(config: pytest.Config) -> None:
    side_by_side.clear_up(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    with side_by_side.collecting(session.config):
        return (yield)


def pytest_collection_finish() -> None:
    """Keep the collector away from the millions of objects of ten thousand tests, none of which goes. It runs its full
    collections six times as seldom as usual: they took a tenth of the time of the API's tests."""
    gc.freeze()
    gc.set_threshold(1_000, 20, 20)
    gc.enable()


def pytest_runtest_logstart(nodeid: str) -> None:
    side_by_side.note_running(nodeid)


def pytest_runtest_logfinish(nodeid: str) -> None:
    side_by_side.note_running(nodeid, ended=True)


def pytest_keyboard_interrupt() -> None:
    side_by_side.tell_interrupted()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    return side_by_side.workers_here()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Rows:
    return Rows(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return tiers.ignores(config, collection_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.select(config, items)
    side_by_side.put_in_order(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with side_by_side.turn(item), side_by_side.watch(item):
        return (yield)
