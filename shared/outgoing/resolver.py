"""Resolves names to addresses that the guard allows.

The connector connects to exactly these addresses, so a name that changes between a check and its use (DNS rebinding)
gains nothing. Only the allowed addresses of a name are used; a name without one is `Blocked`.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from shared.outgoing.guard import Guard, block
from shared.outgoing.lookups import NameLookups


def system_lookup(host: str) -> list[str]:
    """The addresses in /etc/hosts and DNS, of families that this machine has an address of."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class GuardedResolver(AbstractResolver):
    """The only source of addresses for aiohttp."""

    def __init__(self, guard: Guard, names: NameLookups) -> None:
        self._guard = guard
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses that may be called. Raises `Blocked`, `OSError` for an unknown name, `Unavailable` if it
        could not be looked up in time."""
        found = await self._names.find(host)
        objections = {address: self._guard.objection(address, port) for address in found}
        allowed = [address for address, objection in objections.items() if objection is None]
        if not allowed:
            self._names.forget(host)
            raise block(host, objections.values())
        return [_result(host, address, port) for address in allowed]

    async def close(self) -> None:
        self._names.close()


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
    )
