"""Names to addresses, past the guard.

The connector connects to the very addresses that come out of here, so a name that changes between a check and its use
(DNS rebinding) gains nothing. Of several addresses those that may be called are used; a name with none is `Blocked`.
"""

import asyncio
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from aiohttp.abc import AbstractResolver, ResolveResult

from shared.outgoing.guard import Blocked, Guard

# A name server that is away holds a thread for up to half a minute. These are our own, so that a few dead names neither
# hold up the rest nor whatever else the process does in the event loop's few threads.
THREADS = 32

Lookup = Callable[[str], Sequence[str]]
"""The addresses of a name, as the system knows them. It may block; raises `OSError`."""


def system_lookup(host: str) -> list[str]:
    """What /etc/hosts and DNS say, without families that this machine has no address of."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class GuardedResolver(AbstractResolver):
    """The only names that aiohttp knows."""

    def __init__(self, guard: Guard, lookup: Lookup) -> None:
        self._guard = guard
        self._lookup = lookup
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="names")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses that may be called. Raises `Blocked`, and `OSError` for a name that nobody knows."""
        found = await asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, host)
        objections = {address: self._guard.objection(address, port) for address in found}
        allowed = [address for address, objection in objections.items() if objection is None]
        if not allowed:
            kinds = sorted({objection for objection in objections.values() if objection})
            # Which address it is stays here: the text goes to users, who are not to explore our network's names.
            raise Blocked(f"{host} leads to {' and '.join(kinds) or 'no address'}")
        return [_result(host, address, port) for address in allowed]

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
    )
