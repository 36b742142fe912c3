"""Names that give no answer hold up whoever calls them, and nobody else."""

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from shared.core.errors import Unavailable
from shared.drivers.http import NotConnected, Posting, Unreachable
from shared.drivers.http.guard import THREADS, NameLookups, name_owner
from tests.drivers.http.receiver import INTERNET, Receiver, a_call, calling
from tests.waiting import until

SHARE = THREADS // 4


class NameServers:
    """Answers, but for names that end in `.silent`, which get none before they are released."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.released = threading.Event()

    def lookup(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        if host.endswith(".silent"):
            self.released.wait()
        return [INTERNET, "127.0.0.3"]


@pytest.fixture
def servers() -> Iterator[NameServers]:
    made = NameServers()
    yield made
    made.released.set()


def ask(names: NameLookups, owner: str, host: str) -> "asyncio.Task[Sequence[str]]":
    token = name_owner.set(owner)
    try:
        return asyncio.create_task(names.find(host))
    finally:
        name_owner.reset(token)


async def test_one_owner_has_a_quarter_of_the_threads_for_as_long_as_they_are_busy(servers: NameServers) -> None:
    names = NameLookups(servers.lookup, patience_seconds=0.2)
    silent = [ask(names, "evil", f"{number}.silent") for number in range(2 * THREADS)]
    # What it waits for itself, somebody else has at once.
    theirs, ours = ask(names, "evil", "shop.example"), ask(names, "good", "shop.example")
    assert await ours == [INTERNET, "127.0.0.3"]
    results = await asyncio.gather(*silent[SHARE:], theirs, return_exceptions=True)
    assert {type(result) for result in results} == {Unavailable}
    assert len([name for name in servers.asked if name.endswith(".silent")]) == SHARE
    assert not any(task.done() for task in silent[:SHARE])
    for task in silent[:SHARE]:
        task.cancel()
    await asyncio.gather(*silent[:SHARE], return_exceptions=True)
    with pytest.raises(Unavailable):  # nobody waits for them any more, and the threads are busy still
        await ask(names, "evil", "late.silent")
    servers.released.set()
    await until(lambda: not names._free.held, "free threads")
    assert await ask(names, "evil", "fair.example") == [INTERNET, "127.0.0.3"]
    names.close()


async def test_a_name_is_looked_up_once_and_its_addresses_take_turns(servers: NameServers) -> None:
    names = NameLookups(servers.lookup, patience_seconds=5)
    await asyncio.gather(*(ask(names, "one", "shop.example") for _ in range(50)))
    assert servers.asked == ["shop.example"]
    assert [(await names.find("shop.example"))[0] for _ in range(3)] == ["127.0.0.3", INTERNET, "127.0.0.3"]
    names.forget("shop.example")
    await names.find("shop.example")
    assert len(servers.asked) == 2
    names.close()


@pytest.mark.slow
async def test_a_call_whose_name_nobody_could_look_up_is_no_fault_of_the_target(
    servers: NameServers, receiver: Receiver
) -> None:
    port = receiver.url.rsplit(":", 1)[1]
    async with calling(lookup=servers.lookup, timeout_seconds=3, connections=0) as outgoing:
        calls = [outgoing.call(a_call(f"http://{number}.silent:{port}/", owner="evil")) for number in range(SHARE + 2)]
        good = outgoing.call(a_call(f"http://shop.example:{port}/", owner="good"))
        answered, *results = await asyncio.gather(good, *calls, return_exceptions=True)
        assert not isinstance(answered, BaseException)
        assert answered.accepted
        assert [type(result) for result in results] == [Unreachable] * SHARE + [Unavailable] * 2
        token = name_owner.set("evil")
        with pytest.raises(NotConnected, match="not looked up"):
            await outgoing.post(Posting(f"http://9.silent:{port}/", {}, b"", 5, lambda: True))
        name_owner.reset(token)
    assert len(receiver.received) == 1
