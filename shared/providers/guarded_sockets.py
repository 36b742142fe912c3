"""Connections to a host that an account names: the guard judges the addresses from DNS, and the allowed ones are
tried in order."""

import asyncio
import os
import socket
import ssl
from contextlib import suppress

from shared.outgoing.guard import Guard, block

CONNECT_SECONDS = 5.0  # for one address; a host may have several


async def connect_socket(host: str, port: int, guard: Guard) -> socket.socket:
    """Return a connected socket.

    Raises:
        Blocked: the host must not be connected to.
        OSError, TimeoutError: no address could be connected to.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    objections = [guard.objection(str(info[4][0]), port) for info in found]
    allowed = [info for info, objection in zip(found, objections, strict=True) if objection is None]
    if not allowed:
        raise block(host, objections)
    for info in allowed[:-1]:
        with suppress(OSError, TimeoutError):
            return await _connect(info, guard)
    return await _connect(allowed[-1], guard)


def describe_fault(fault: BaseException) -> str:
    """The fault of a connection, to be read after the server's name."""
    match fault:
        case ssl.SSLCertVerificationError():
            return f"cannot be trusted: {fault.verify_message}"
        case ssl.SSLError():
            return "cannot be trusted: the TLS handshake failed"
        case socket.gaierror():
            return "cannot be found: nobody knows the name"
        case TimeoutError():
            return "did not answer in time"
        case OSError():
            # The driver's own text shows the address of the name.
            return f"cannot be connected to: {os.strerror(fault.errno) if fault.errno else 'no connection'}"
        case _:
            return f"cannot be spoken to: {fault}"


async def _connect(info: tuple[object, ...], guard: Guard) -> socket.socket:
    opened = guard.socket(info)
    try:
        opened.setblocking(False)
        async with asyncio.timeout(CONNECT_SECONDS):
            await asyncio.get_running_loop().sock_connect(opened, info[4])  # type: ignore[arg-type]
    except BaseException:
        opened.close()
        raise
    return opened
