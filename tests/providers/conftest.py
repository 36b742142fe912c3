"""Fakes as processes, and accounts at them."""

import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.drivers.http.receiver import calling
from tests.providers.accounts import EVERY, LOOPBACK, NETWORK, Account, NetworkAccount, SandboxAccount
from tests.providers.fakes import FakeProcess, run_fake

Fakes = Mapping[str, FakeProcess]

CALL_SECONDS = 20.0  # a busy machine answers sooner


@pytest.fixture(scope="session")
def started() -> Iterator[Fakes]:
    """A fake of each sort, by its module."""
    with ExitStack() as stack:
        modules = {kind.fake_module for kind in NETWORK.values()}
        yield {module: stack.enter_context(run_fake(module)) for module in modules}


@pytest.fixture
async def fakes(started: Fakes) -> Fakes:
    """The same, without anything of the test before."""
    for fake in started.values():
        await fake.answer()
        await fake.forget()
    return started


@pytest.fixture(params=EVERY)
async def account(request: pytest.FixtureRequest, tmp_path: Path, fakes: Fakes) -> AsyncIterator[Account]:
    """An account of each kind."""
    async with calling(allowed_networks=LOOPBACK, connections=0) as outgoing:
        if request.param in NETWORK:
            kind = NETWORK[request.param]
            chosen = kind(fakes[kind.fake_module], outgoing, CALL_SECONDS)
            yield chosen
            await chosen.close()
        else:
            yield SandboxAccount(outgoing, str(tmp_path / "arrivals.ndjson"))


@pytest.fixture(params=NETWORK)
async def at_fake(request: pytest.FixtureRequest, fakes: Fakes) -> AsyncIterator[NetworkAccount]:
    """An account of each kind that is on the network."""
    kind = NETWORK[request.param]
    async with calling(allowed_networks=LOOPBACK, connections=0) as outgoing:
        chosen = kind(fakes[kind.fake_module], outgoing, CALL_SECONDS)
        yield chosen
        await chosen.close()


@pytest.fixture(params=NETWORK)
async def at_nobody(request: pytest.FixtureRequest) -> AsyncIterator[NetworkAccount]:
    """An account of each kind at a port where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with calling(allowed_networks=LOOPBACK, connections=0) as outgoing:
            yield NETWORK[request.param](FakeProcess(None, unused.getsockname()[1]), outgoing, CALL_SECONDS)
