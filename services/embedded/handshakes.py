"""Just enough of two servers' protocols to know that they serve, not merely listen.

The drivers belong to the capabilities; a child server must be known to be healthy before any of those is made.
"""

import asyncio
import struct

_ANSWER_SECONDS = 2.0
_LET_IN, _ASKED_FOR_SCRAM = struct.pack("!i", 0), struct.pack("!i", 10)


async def mongodb_answers(port: int) -> bool:
    """Whether a MongoDB server on this loopback port answers `hello` with ok: 1."""
    body = b"\x10hello\x00\x01\x00\x00\x00\x02$db\x00\x06\x00\x00\x00admin\x00"
    document = struct.pack("<i", len(body) + 5) + body + b"\x00"
    message = struct.pack("<iiii", 16 + 5 + len(document), 1, 0, 2013) + b"\x00\x00\x00\x00\x00" + document
    reply = await _exchange(port, message, 16)
    if len(reply) < 16:
        return False
    return b"\x01ok\x00" + struct.pack("<d", 1.0) in reply


async def postgres_answers(port: int, user: str = "postgres") -> bool:
    """Whether a PostgreSQL server on this loopback port lets the user in, or asks for a password: so it is past
    recovery."""
    body = struct.pack("!i", 196608) + f"user\0{user}\0database\0postgres\0\0".encode()
    reply = await _exchange(port, struct.pack("!i", len(body) + 4) + body, 9)
    return reply[:1] == b"R" and reply[5:9] in (_LET_IN, _ASKED_FOR_SCRAM)


async def _exchange(port: int, message: bytes, at_least: int) -> bytes:
    """The bytes that came back after the message, up to 64 KiB; empty if nobody answered."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(message)
                head = await reader.readexactly(at_least)
                return head + await reader.read(65_536)
            finally:
                writer.close()
                await writer.wait_closed()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return b""
