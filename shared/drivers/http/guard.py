"""The guard: which IP addresses may be called.

A user's URL must not reach what only Carillon can reach: the deployment's own network, this machine, the cloud's
metadata service. So an address may be called if the deployment allows its network, or if the whole Internet reaches it.
Carillon's own API is never called: there, a call that comes from this machine may be enough proof of who is asking.

The table follows IANA's special-purpose registries (RFC 6890 and its updates), because Python's `is_global` changed
between patch releases.
"""

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from cachetools import TTLCache

from shared.core.errors import Invalid, Unavailable
from shared.drivers.http import Blocked
from shared.runtime.fair_budget import FairBudget

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_SPECIAL: tuple[tuple[Network, str], ...] = tuple(
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a carrier's private address"),
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "a cloud platform's own address"),  # public by its number, but Azure's host answers there
        ("169.254.0.0/16", "a link-local address"),  # includes the metadata service of most clouds
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a private address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("::/128", "an unspecified address"),
        ("::1/128", "a loopback address"),
        ("::/96", "an IPv4-compatible address"),
        ("64:ff9b:1::/48", "a private NAT64 address"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/32", "a Teredo address"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "a documentation address"),
        ("2002::/16", "a 6to4 address"),
        ("3fff::/20", "a documentation address"),
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # IANA has assigned no other IPv6 addresses for general use
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
OUR_API = "this deployment's own API"
_WEB_PORTS = frozenset({80, 443})


class OwnApi:
    """The addresses of Carillon's own API: `host` and `port` are what it listens on, callers use `public_url`.

    An API in this process takes a free port if none is set, and sets `port` when it listens.
    """

    def __init__(self, host: str = "", port: int = 0, *, public_url: str = "") -> None:
        public = urlsplit(public_url)
        self.port = port
        self._host = host
        self._public_name = (public.hostname or "").removesuffix(".")
        self._public_ports = _WEB_PORTS | ({public.port} if public.port else frozenset())

    def is_at(self, address: Address, port: int) -> bool:
        """Whether the API listens there: at its configured address, or at any address of this machine."""
        if self._is_public(str(address), port):
            return True
        return bool(self.port) and port == self.port and (str(address) == self._host or _is_of_this_machine(address))

    def is_called(self, name: str, port: int) -> bool:
        return self._is_public(name.lower().removesuffix("."), port)

    def _is_public(self, host: str, port: int) -> bool:
        return host == self._public_name and port in self._public_ports


NO_API = OwnApi()


def block(host: str, objections: Iterable[str | None]) -> Blocked:
    """The error for a name without an allowed address. It shows no address, so that users cannot explore the
    network."""
    kinds = sorted({objection for objection in objections if objection})
    hint = "; allowed_networks can allow it" if {*kinds} - {OUR_API} else ""
    return Blocked(f"{host} leads to {' and '.join(kinds) or 'no address'}{hint}")


class Guard:
    """Judges addresses. `allowed_networks` (CIDR, as in `10.1.0.0/16`) may be called, except for the `own` API."""

    def __init__(self, allowed_networks: tuple[str, ...], own: OwnApi = NO_API) -> None:
        self._allowed = tuple(_network(text) for text in allowed_networks)
        self._own = own

    def objection(self, address: str, port: int = 0) -> str | None:
        """Why this address must not be called, as in "a loopback address", or `None`. The address may have a zone.

        An IPv4-mapped address counts as its IPv4 address.
        """
        try:
            judged = unmap(ipaddress.ip_address(address))
        except ValueError:
            return "no address"
        if self._own.is_at(judged, port):
            return OUR_API
        return None if any(judged in network for network in self._allowed) else _special(judged)

    def name_objection(self, name: str, port: int) -> str | None:
        return OUR_API if self._own.is_called(name, port) else None

    def socket(self, addr_info: tuple[Any, ...]) -> socket.socket:
        """A socket for an address of `getaddrinfo`: the last check, after which nothing is looked up or parsed
        again."""
        family, kind, protocol, _, sockaddr = addr_info
        if objection := self.objection(sockaddr[0], sockaddr[1]):
            raise PermissionError(f"the target is {objection}")
        return socket.socket(family=family, type=kind, proto=protocol)


@lru_cache(maxsize=8)
def guard_of(allowed_networks: tuple[str, ...], own: OwnApi = NO_API) -> Guard:
    """The guard of a deployment's setting, cached: a bulk of 10,000 URLs parses its networks once."""
    return Guard(allowed_networks, own)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise Invalid("a network as in 10.0.0.0/8 is needed", field="allowed_networks", value=text) from None


def _is_of_this_machine(address: Address) -> bool:
    """Whether a socket can bind this address: then a call to it reaches this machine."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def unmap(address: Address) -> Address:
    """The IPv4 address of an IPv4-mapped one; any other address as it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _special(address: Address) -> str | None:
    if address in _NAT64:
        # A NAT64 gateway is in this network: calls reach the translated address.
        return _special(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    for network, kind in _SPECIAL:
        if address in network:
            return kind
    return None if address.version == 4 or address in _GLOBAL_UNICAST else "a reserved address"


THREADS = 32
_A_QUARTER = 1 / 3  # the greed with which one owner alone gets a quarter
_REMEMBERED_NAMES = 1_000
_REMEMBERED_SECONDS = 10.0
Lookup = Callable[[str], Sequence[str]]
"""The system's addresses of a name. It may block; raises `OSError`."""
name_owner: ContextVar[str] = ContextVar("name_owner", default="")
"""The owner that name lookups are charged to in this context."""


class NameLookups:
    """Looks each name up once for all callers of one owner, and remembers its addresses for ten seconds. Without an
    owner, each name is its own owner."""

    def __init__(self, lookup: Lookup, *, patience_seconds: float) -> None:
        self._lookup = lookup
        self._patience = patience_seconds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="names")
        self._free = FairBudget(THREADS, greed=_A_QUARTER)
        self._known: TTLCache[str, deque[str]] = TTLCache(_REMEMBERED_NAMES, _REMEMBERED_SECONDS)
        self._asked: dict[tuple[str, str], asyncio.Task[Sequence[str]]] = {}

    async def find(self, host: str) -> Sequence[str]:
        """The addresses of a name, rotated each time. Raises `OSError` for an unknown name."""
        if (known := self._known.get(host)) is not None:
            known.rotate(-1)
            return tuple(known)
        key = (name_owner.get() or host, host)
        if (asked := self._asked.get(key)) is None:
            asked = self._asked[key] = asyncio.create_task(self._ask(*key))
            asked.add_done_callback(lambda task: self._note_end(key, task))
        return await asyncio.shield(asked)

    def forget(self, host: str) -> None:
        self._known.pop(host, None)

    def close(self) -> None:
        for asked in list(self._asked.values()):
            asked.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _ask(self, owner: str, host: str) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._patience):
                await self._free.take(owner)
        except TimeoutError:
            raise Unavailable(f"{host} was not looked up: too many other names give no answer") from None
        loop = asyncio.get_running_loop()

        def give_back(_: "Future[Sequence[str]]") -> None:
            with suppress(RuntimeError):  # the loop may have ended before the name server's time-out
                loop.call_soon_threadsafe(self._free.give_back, owner)

        running = self._threads.submit(self._lookup, host)
        running.add_done_callback(give_back)
        found = await asyncio.wrap_future(running)
        self._known[host] = deque(found)
        return found

    def _note_end(self, key: tuple[str, str], task: "asyncio.Task[Sequence[str]]") -> None:
        del self._asked[key]
        if not task.cancelled():
            task.exception()  # the callers may be gone
