"""Whom Carillon speaks to: a server with a wrong name, of an unknown authority, or with an expired certificate is
refused by a sentence that says which, before anything was said to it."""

import asyncio
import gc
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from services.wiring.servers import Servers
from shared.core.errors import Unavailable
from shared.drivers.rabbitmq.management import Management
from shared.jobs.rules.mails import Letter
from shared.runtime.configuration import load
from shared.store import Store
from tests.stack.certificates import Authority

pytestmark = pytest.mark.secure

SECRET = "tell-no-one"
LETTER = Letter(id="1@example.com", to=("ana@example.com",), subject="s", text="t")
FAULTS = {
    "another name": "for another name",
    "unknown authority": "an authority that we do not know",
    "expired": "has expired",
}


class Listener:
    """A server that never answers. It notes what came to it after TLS, and what came in clear before."""

    def __init__(self, certificate: Path, server: str) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        self._asked_first = server == "postgresql"
        self._greeting = b"220 mx ESMTP\r\n" if server == "smtps" else b""
        self.trusted = False
        self.clear = b""
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Listener"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._asked_first:  # PostgreSQL's way: may I speak TLS? Yes.
                self.clear += await reader.readexactly(8)
                writer.write(b"S")
            await writer.start_tls(self._context, ssl_handshake_timeout=5)
            writer.write(self._greeting)
            self.trusted |= bool(await reader.read(1))
        except (OSError, EOFError, ssl.SSLError):
            pass
        finally:
            writer.close()


async def ping_store(servers: Servers) -> None:
    store = Store.open(servers.settings.store.url, timeout_seconds=1, tls=servers.settings.tls)
    try:
        await store.ping()
    finally:
        await store.close()


async def ping_broker(servers: Servers) -> None:
    await servers.broker.ping()


async def ping_stream(servers: Servers) -> None:
    await servers.stream.ping()


async def ask_audience(servers: Servers) -> None:
    await servers.audience.highest("push")


async def ask_blobs(servers: Servers) -> None:
    await servers.blobs.stat("carillon/jobs/1.csv")


async def send_mail(servers: Servers) -> None:
    await servers.mail.send(LETTER)


async def ask_management(servers: Servers) -> None:
    chosen = servers.settings.broker.management_url
    await Management(chosen, vhost="carillon", user="carillon", tls=servers.settings.tls).check(())


Ask = Callable[[Servers], Awaitable[None]]
SERVERS: dict[str, tuple[Ask, dict[str, str]]] = {
    "mongodb": (
        ping_store,
        {"STORE_URL": "mongodb://carillon:{secret}@{at}/carillon?tls=true"},
    ),
    "rabbitmq": (ping_broker, {"BROKER_URL": "amqps://carillon:{secret}@{at}/carillon"}),
    "management": (ask_management, {"BROKER_MANAGEMENT_URL": "https://carillon:{secret}@{at}"}),
    "kafka": (ping_stream, {"STREAM_URL": "kafka+ssl://carillon:{secret}@{at}?mechanism=plain"}),
    "postgresql": (ask_audience, {"AUDIENCE_URL": "postgresql://carillon:{secret}@{at}/push?sslmode=verify-full"}),
    "s3": (
        ask_blobs,
        {
            "BLOBS_URL": "s3://carillon",
            "BLOBS_ENDPOINT_URL": "https://{at}",
            "BLOBS_REGION": "us-east-1",
            "BLOBS_ACCESS_KEY": "key",
            "BLOBS_SECRET_KEY": "{secret}",
        },
    ),
    "smtps": (send_mail, {"MAIL_URL": "smtps://carillon:{secret}@{at}"}),
}


def certificate_for(fault: str, folder: Path) -> tuple[Path, Path]:
    """A server's certificate with this fault, and whom its client trusts."""
    ours = Authority()
    signer = Authority("somebody else") if fault == "unknown authority" else ours
    address = "127.0.0.9" if fault == "another name" else "127.0.0.1"
    days = -1 if fault == "expired" else 30
    (folder / "server.pem").write_bytes(signer.issue("server", address=address, days=days))
    (folder / "ca.pem").write_bytes(ours.pem)
    return folder / "server.pem", folder / "ca.pem"


# PyMongo leaves a socket to the collector when it gives up in the middle of a handshake.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("server", SERVERS)
async def test_it_is_refused_and_told_nothing(server: str, fault: str, tmp_path: Path) -> None:
    certificate, trusted = certificate_for(fault, tmp_path)
    listener, reason = await speak_to(server, certificate, trusted)
    assert FAULTS[fault] in reason
    assert SECRET not in reason
    assert not listener.trusted
    assert SECRET.encode() not in listener.clear


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("server", SERVERS)
async def test_with_the_right_certificate_it_is_spoken_to(server: str, tmp_path: Path) -> None:
    listener, _ = await speak_to(server, *certificate_for("", tmp_path))
    assert listener.trusted


async def speak_to(server: str, certificate: Path, trusted: Path) -> tuple[Listener, str]:
    """Try to use a server with this certificate that answers nothing; why that failed."""
    ask, urls = SERVERS[server]
    async with Listener(certificate, server).listening() as listener:
        where: dict[str, Any] = {"at": f"127.0.0.1:{listener.port}", "secret": SECRET}
        environment = {f"CARILLON_{name}": url.format(**where) for name, url in urls.items()}
        settings = load({**environment, "CARILLON_TLS_CA_FILE": str(trusted)})
        servers = Servers(settings, service="test")
        try:
            with pytest.raises(Unavailable) as refused:
                await ask(servers)
        finally:
            await servers.close()
            gc.collect()
    return listener, str(refused.value)


async def test_a_server_without_tls_is_told_nothing(tmp_path: Path) -> None:
    """PostgreSQL asks first; the answer is no."""
    came = b""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += await reader.readexactly(8)
        writer.write(b"N")
        came += await reader.read(1_000)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    _, urls = SERVERS["postgresql"]
    url = urls["AUDIENCE_URL"].format(at=f"127.0.0.1:{server.sockets[0].getsockname()[1]}", secret=SECRET)
    servers = Servers(load({"CARILLON_AUDIENCE_URL": url}), service="test")
    with pytest.raises(Unavailable, match="rejected SSL upgrade"):
        await ask_audience(servers)
    await servers.close()
    server.close()
    assert len(came) == 8
