"""The guard: which IP addresses may be called.

A URL that our users give us to call must not reach what only we can reach: the deployment's own network, this machine,
the cloud's metadata service. So an address may be called if the deployment allows its network, or if it is one that the
whole Internet reaches. Our own API is not called even where its network is allowed: there, a call that comes from this
machine may be proof enough of who is asking.

The table follows IANA's special-purpose registries (RFC 6890 and its updates), because Python's own `is_global` changed
its mind between patch releases.
"""

import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from shared.domain.errors import CarillonError, Invalid

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
        ("169.254.0.0/16", "a link-local address"),  # most clouds' metadata service among them
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
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # IANA has given out no other IPv6 addresses for general use
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


OUR_API = "this deployment's own API"
_WEB_PORTS = frozenset({80, 443})


class OwnApi:
    """The addresses of our own API: `host` and `port` are what it listens on, `public_url` is what callers use.

    An API in this very process takes a free port where none is chosen, and tells it when it listens.
    """

    def __init__(self, host: str = "", port: int = 0, *, public_url: str = "") -> None:
        public = urlsplit(public_url)
        self.port = port
        self._host = host
        self._public_name = (public.hostname or "").removesuffix(".")
        self._public_ports = _WEB_PORTS | ({public.port} if public.port else frozenset())

    def is_at(self, address: Address, port: int) -> bool:
        """Whether it listens there: at the address that it was given, or at any of this machine's."""
        if self._is_public(str(address), port):
            return True
        return bool(self.port) and port == self.port and (str(address) == self._host or _is_of_this_machine(address))

    def is_called(self, name: str, port: int) -> bool:
        """Whether callers reach it by this name."""
        return self._is_public(name.lower().removesuffix("."), port)

    def _is_public(self, host: str, port: int) -> bool:
        return host == self._public_name and port in self._public_ports


NO_API = OwnApi()


class Blocked(CarillonError):
    """The target must not be called, and was not: its address is guarded, or its URL cannot be one of ours."""


def block(host: str, objections: Iterable[str | None]) -> Blocked:
    """The error for a name that leads to no address that may be called. It shows none of them: users are not to explore
    our network's names."""
    kinds = sorted({objection for objection in objections if objection})
    hint = "; allowed_networks can allow it" if {*kinds} - {OUR_API} else ""
    return Blocked(f"{host} leads to {' and '.join(kinds) or 'no address'}{hint}")


class Guard:
    """Judges addresses. `allowed_networks` (CIDR, as in `10.1.0.0/16`) may be called whatever they are, but for our own
    API, which `own` tells.

    Raises `Invalid` for what is no network.
    """

    def __init__(self, allowed_networks: tuple[str, ...], own: OwnApi = NO_API) -> None:
        self._allowed = tuple(_network(text) for text in allowed_networks)
        self._own = own

    def objection(self, address: str, port: int = 0) -> str | None:
        """Why this address must not be called, as in "a loopback address", or `None`. It may carry a zone.

        An IPv4-mapped address is the IPv4 address in it.
        """
        try:
            judged = unmap(ipaddress.ip_address(address))
        except ValueError:
            return "no address"
        if self._own.is_at(judged, port):
            return OUR_API
        return None if any(judged in network for network in self._allowed) else _special(judged)

    def name_objection(self, name: str, port: int) -> str | None:
        """Why this name must not be called, whatever it leads to."""
        return OUR_API if self._own.is_called(name, port) else None

    def socket(self, addr_info: tuple[Any, ...]) -> socket.socket:
        """A socket for one address of `getaddrinfo`: the last gate, past which nothing is looked up or parsed again."""
        family, kind, protocol, _, sockaddr = addr_info
        if objection := self.objection(sockaddr[0], sockaddr[1]):
            raise PermissionError(f"the target is {objection}")
        return socket.socket(family=family, type=kind, proto=protocol)


@lru_cache(maxsize=8)
def guard_of(allowed_networks: tuple[str, ...], own: OwnApi = NO_API) -> Guard:
    """The guard of a deployment's setting; a bulk of 10,000 URLs reads its networks once."""
    return Guard(allowed_networks, own)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise Invalid("a network as in 10.0.0.0/8 is needed", field="allowed_networks", value=text) from None


def _is_of_this_machine(address: Address) -> bool:
    """Whether a socket here can have this address: then whoever calls it calls this machine."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def unmap(address: Address) -> Address:
    """The IPv4 address that an IPv4-mapped one stands for; any other as it is."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _special(address: Address) -> str | None:
    if address in _NAT64:
        # A NAT64 gateway stands in our network: what it translates to is what is reached.
        return _special(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
    for network, kind in _SPECIAL:
        if address in network:
            return kind
    return None if address.version == 4 or address in _GLOBAL_UNICAST else "a reserved address"
