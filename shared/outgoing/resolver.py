"""Names to addresses, past the guard.

The connector connects to the very addresses that come out of here, so a name that changes between a check and its use
(DNS rebinding) gains nothing. Those of several addresses that may be called are used; a name with none is `Blocked`.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from shared.outgoing.guard import Guard, block
from shared.outgoing.lookups import NameLookups


def system_lookup(host: str) -> list[str]:
    """The addresses that /etc/hosts and DNS give, without families that this machine has no address of."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class GuardedResolver(AbstractResolver):
    """The only names that aiohttp knows."""

    def __init__(self, guard: Guard, names: NameLookups) -> None:
        self._guard = guard
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses that may be called. Raises `Blocked`, `OSError` for a name that nobody knows, and `Unavailable`
        where nobody could look it up."""
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
