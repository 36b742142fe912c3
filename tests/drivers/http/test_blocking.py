"""What must not be reached is not reached: by a literal address, by a name, by one that changes, by a redirect."""

import socket
from collections.abc import AsyncIterator, Sequence

import pytest
from aiohttp import web

from shared.core.errors import Invalid
from shared.drivers.http import Blocked, Unreachable
from shared.drivers.http.client import GuardedResolver, HttpOutgoing, system_lookup
from shared.drivers.http.guard import Guard, Lookup, NameLookups, OwnApi
from tests.drivers.http.receiver import ALLOWED, INTERNET, PRIVATE, Receiver, a_call, calling, receiving


@pytest.fixture
async def inner(receiver: Receiver) -> AsyncIterator[Receiver]:
    """A server that must not be reached, at the port of the one that may be."""
    async with receiving(PRIVATE, _port(receiver)) as started:
        yield started


def _port(receiver: Receiver) -> int:
    return int(receiver.url.rsplit(":", 1)[1])


def _lookup(*answers: Sequence[str]) -> tuple[Lookup, list[str]]:
    """Gives these answers in turn, and keeps what it was asked."""
    asked: list[str] = []

    def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    return lookup, asked


@pytest.mark.parametrize(
    "host",
    [
        PRIVATE,
        "[::1]",
        "[::]",
        "0.0.0.0",
        "[::ffff:127.0.0.2]",
        "2130706434",
        "0x7f000002",
        "0x7f.0.0.2",
        "0177.0.0.2",
        "127.2",
        "127.0.0.2.",
        "[fe80::1%25eth0]",
        "[::127.0.0.2]",
        "169.254.169.254",
        "10.0.0.1",
        "user@10.0.0.1",
        "127.0.0.1@127.0.0.2",
    ],
)
async def test_a_literal_address_is_blocked(outgoing: HttpOutgoing, inner: Receiver, host: str) -> None:
    with pytest.raises(Blocked):
        await outgoing.call(a_call(f"http://{host}:{_port(inner)}/"))
    assert inner.received == []


async def test_a_name_that_leads_inside_is_blocked(inner: Receiver) -> None:
    lookup, _ = _lookup([PRIVATE, "10.0.0.1", "::1", "169.254.169.254"])
    async with calling(lookup=lookup) as outgoing:
        with pytest.raises(Blocked) as caught:
            await outgoing.call(a_call(f"http://hooks.example:{_port(inner)}/"))
    assert str(caught.value) == (
        "hooks.example leads to a link-local address and a loopback address and a private address; "
        "allowed_networks can allow it"
    )
    assert inner.received == []


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.", "x.localhost"])
async def test_localhost_is_blocked_by_its_name(receiver: Receiver, host: str) -> None:
    async with calling(allowed_networks=()) as outgoing:
        with pytest.raises(Blocked, match="localhost is a loopback address"):
            await outgoing.call(a_call(f"http://{host}:{_port(receiver)}/"))
    assert receiver.received == []


async def test_localhost_is_blocked_by_what_it_resolves_to() -> None:
    resolver = GuardedResolver(Guard(()), NameLookups(system_lookup, patience_seconds=5))
    with pytest.raises(Blocked, match="localhost leads to a loopback address"):
        await resolver.resolve("localhost", 80)
    await resolver.close()


async def test_localhost_may_be_called_where_it_is_allowed(receiver: Receiver) -> None:
    async with calling(allowed_networks=("127.0.0.0/8", "::1/128")) as outgoing:
        assert (await outgoing.call(a_call(f"http://localhost:{_port(receiver)}/"))).accepted


@pytest.mark.parametrize("listening", ["0.0.0.0", "::", "127.0.0.1", "localhost", "10.9.8.7"])
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "localhost", "x.localhost", "a.example"],
)
async def test_our_own_api_is_not_called_wherever_networks_are_allowed(
    receiver: Receiver, inner: Receiver, listening: str, host: str
) -> None:
    lookup, _ = _lookup(["127.0.0.1", PRIVATE])
    own = OwnApi(listening, _port(receiver))
    async with calling(allowed_networks=("0.0.0.0/0", "::/0"), own=own, lookup=lookup) as outgoing:
        with pytest.raises(Blocked, match="this deployment's own API"):
            await outgoing.call(a_call(f"http://{host}:{_port(receiver)}/users"))
    assert (receiver.received, inner.received) == ([], [])


async def test_another_port_of_this_machine_is_called(receiver: Receiver) -> None:
    own = OwnApi("0.0.0.0", _port(receiver) ^ 1)
    async with calling(allowed_networks=("127.0.0.0/8",), own=own) as outgoing:
        assert (await outgoing.call(a_call(receiver.url))).accepted


@pytest.mark.parametrize(
    "url", ["https://Push.example.com/users", "http://push.example.com./x", "https://push.example.com:8443/"]
)
async def test_our_public_name_is_not_called(url: str) -> None:
    lookup, asked = _lookup([INTERNET])
    own = OwnApi(public_url="https://push.example.com:8443/carillon")
    async with calling(own=own, lookup=lookup) as outgoing:
        with pytest.raises(Blocked, match="this deployment's own API"):
            await outgoing.call(a_call(url))
    assert asked == []


async def test_of_mixed_addresses_only_the_allowed_are_called(receiver: Receiver, inner: Receiver) -> None:
    lookup, _ = _lookup([PRIVATE, INTERNET, PRIVATE])
    async with calling(lookup=lookup) as outgoing:
        assert (await outgoing.call(a_call(f"http://hooks.example:{_port(receiver)}/"))).accepted
    assert (len(receiver.received), len(inner.received)) == (1, 0)


async def test_when_the_allowed_address_is_down_the_others_are_still_not_called(inner: Receiver) -> None:
    lookup, _ = _lookup([INTERNET, PRIVATE])
    async with calling(lookup=lookup) as outgoing, receiving(PRIVATE) as alone:
        with pytest.raises(Unreachable):
            await outgoing.call(a_call(f"http://hooks.example:{_port(alone)}/"))
        assert alone.received == []


async def test_a_name_that_changes_between_check_and_use_gains_nothing(receiver: Receiver, inner: Receiver) -> None:
    lookup, asked = _lookup([INTERNET], [PRIVATE])
    call = a_call(f"http://rebinding.example:{_port(receiver)}/")
    async with calling(lookup=lookup) as outgoing:
        assert (await outgoing.call(call)).accepted
        assert asked == ["rebinding.example"]  # checked and used is one answer
    async with calling(lookup=lookup) as outgoing:
        with pytest.raises(Blocked):
            await outgoing.call(call)
    assert (len(receiver.received), len(inner.received)) == (1, 0)


async def test_a_redirect_inside_is_not_followed(outgoing: HttpOutgoing, receiver: Receiver, inner: Receiver) -> None:
    receiver.answer = lambda: web.Response(status=307, headers={"Location": inner.url})
    assert (await outgoing.call(a_call(receiver.url))).status == 307
    assert inner.received == []


async def test_a_blocked_name_is_looked_up_again_the_next_time(receiver: Receiver) -> None:
    lookup, _ = _lookup([PRIVATE], [INTERNET])
    call = a_call(f"http://hooks.example:{_port(receiver)}/")
    async with calling(lookup=lookup) as outgoing:
        with pytest.raises(Blocked):
            await outgoing.call(call)
        assert (await outgoing.call(call)).accepted


async def test_the_last_gate_holds_when_the_resolver_does_not(
    outgoing: HttpOutgoing, inner: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    unguarded = GuardedResolver(Guard(("0.0.0.0/0",)), NameLookups(lambda _: [PRIVATE], patience_seconds=5))
    monkeypatch.setattr(outgoing._session.connector, "_resolver", unguarded)
    with pytest.raises(Unreachable, match="the target is a loopback address"):
        await outgoing.call(a_call(f"http://hooks.example:{_port(inner)}/"))
    assert inner.received == []
    await unguarded.close()


def test_the_last_gate_opens_for_what_is_allowed() -> None:
    with Guard(ALLOWED).socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", (INTERNET, 80))) as opened:
        assert opened.family == socket.AF_INET


@pytest.mark.parametrize("url", ["", "hooks.example", "ftp://hooks.example/", "http://", "http://a b/", "http://h:0/"])
async def test_a_url_that_should_not_be_stored_is_not_called(outgoing: HttpOutgoing, url: str) -> None:
    with pytest.raises(Blocked):
        await outgoing.call(a_call(url))


async def test_a_setting_that_names_no_network() -> None:
    with pytest.raises(Invalid, match=r"10\.0\.0\.0/8"):
        HttpOutgoing.open(allowed_networks=("10.0.0.1/8",), timeout_seconds=1, connections=1)
