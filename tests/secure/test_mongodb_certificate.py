"""MongoDB can know us by our certificate: what a server sees of that. The stand-in knows no such logins."""

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import bson
import pytest

from shared.core.errors import Unavailable
from shared.runtime.server_settings import TlsSettings
from shared.store import Store
from tests.stack.certificates import CLIENT, Authority

pytestmark = pytest.mark.secure

# MongoDB's protocol: length, number, the number that it answers, and kind; then flags, and one document.
ENVELOPE, HEAD, MESSAGE = struct.Struct("<iiii"), struct.Struct("<iB"), 2013
PRIMARY = {"ismaster": True, "minWireVersion": 0, "maxWireVersion": 21, "ok": 1}


class Listener:
    """A server that wants a certificate. It says that it is a primary, and hangs up on whoever asks to be let in."""

    def __init__(self, certificate: Path, trusted: Path) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=trusted)
        self._context.load_cert_chain(certificate)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self.shown: set[str] = set()
        self.logins: list[dict[str, Any]] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Listener"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context) as server:
            self.port = server.sockets[0].getsockname()[1]
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        subject = writer.get_extra_info("peercert")["subject"]
        self.shown.add(dict(name for [name] in subject)["commonName"])
        with suppress(OSError, EOFError):
            while not await self._answer(reader, writer):
                await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one question; whether its sender asks to be let in."""
        length, number, _, code = ENVELOPE.unpack(await reader.readexactly(ENVELOPE.size))
        body = await reader.readexactly(length - ENVELOPE.size)
        assert code == MESSAGE
        said = bson.decode(body[HEAD.size :])
        if login := said.get("speculativeAuthenticate"):
            self.logins.append(login)
            return True
        answer = HEAD.pack(0, 0) + bson.encode(PRIMARY)
        writer.write(ENVELOPE.pack(ENVELOPE.size + len(answer), 0, number, MESSAGE) + answer)
        return False


def write_files(folder: Path) -> tuple[Path, TlsSettings]:
    """A server's certificate, and the settings of its client, who has a certificate and a key in two files."""
    authority = Authority()
    (folder / "server.pem").write_bytes(authority.issue("server"))
    (folder / "ca.pem").write_bytes(authority.pem)
    key, begin, certificate = authority.issue(CLIENT).partition(b"-----BEGIN CERTIFICATE-----")
    (folder / "own.key").write_bytes(key)
    (folder / "own.pem").write_bytes(begin + certificate)
    files = {name: str(folder / file) for name, file in (("ca_file", "ca.pem"), ("key_file", "own.key"))}
    return folder / "server.pem", TlsSettings(certificate_file=str(folder / "own.pem"), **files)  # type: ignore[arg-type]


async def test_it_sees_our_certificate_and_is_asked_to_know_us_by_it(tmp_path: Path) -> None:
    certificate, tls = write_files(tmp_path)
    async with Listener(certificate, tmp_path / "ca.pem").listening() as listener:
        url = f"mongodb://127.0.0.1:{listener.port}/carillon?tls=true&authMechanism=MONGODB-X509"
        store = Store.open(url, timeout_seconds=2, tls=tls)
        with pytest.raises(Unavailable):
            await store.ping()
        await store.close()
    assert listener.shown == {CLIENT}
    assert listener.logins
    for login in listener.logins:
        assert login == {"authenticate": 1, "mechanism": "MONGODB-X509"}
