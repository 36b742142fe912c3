"""Certificates that servers show to the doctor."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from services.commands.doctor import examine
from services.commands.doctor.others import check_tls
from services.commands.doctor.questions import Given, Level
from services.wiring.servers import Servers
from shared.runtime.configuration import load
from tests.services.commands.doctor.test_command import NOBODY

HERE = "127.0.0.1"


def certificate(folder: Path, *, days: float, address: str = HERE) -> Path:
    """A key and a certificate that vouches for itself, good for so many days."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    end = datetime.now(UTC) + timedelta(days=days)
    begin = end - timedelta(days=400)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), begin, end)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    encoding, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file = folder / f"{days}-{address}.pem"
    file.write_bytes(key.private_bytes(encoding, pkcs8, serialization.NoEncryption()) + made)
    return file


@asynccontextmanager
async def showing(file: Path, *, greeted: bool = False) -> AsyncIterator[int]:
    """A server that shows it and hangs up; as PostgreSQL does, if it is `greeted` first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if greeted:
                await reader.readexactly(8)
                writer.write(b"S")
                await writer.start_tls(context)
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, HERE, 0, ssl=None if greeted else context) as server:
        yield server.sockets[0].getsockname()[1]


SERVERS = {
    "Mail": ("MAIL_URL", "smtps://ana:s3cret-word@127.0.0.1:{port}"),
    "PostgreSQL": ("AUDIENCE_URL", "postgresql://ana:s3cret-word@127.0.0.1:{port}/push?sslmode=verify-full"),
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("days", "address", "trusted", "check", "said"),
    [
        (90, HERE, True, "", ""),
        (5, HERE, True, "tls", f"the certificate of {HERE} ends in 5 days"),
        (-1, HERE, True, "login", "expired"),
        (90, "10.9.8.7", True, "login", "is for another name"),
        (90, HERE, False, "login", "signed by an authority that we do not know"),
    ],
)
async def test_a_certificate(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    server: str,
    days: float,
    address: str,
    *,
    trusted: bool,
    check: str,
    said: str,
) -> None:
    for limit in ("ANSWER_SECONDS", "ALL_SECONDS"):
        monkeypatch.setattr(f"services.commands.doctor.questions.{limit}", 60.0)  # the machine may be busy
    file = certificate(tmp_path, days=days, address=address)
    name, url = SERVERS[server]
    environment = NOBODY | ({"CARILLON_TLS_CA_FILE": str(file)} if trusted else {})
    async with showing(file, greeted=server == "PostgreSQL") as port:
        settings = load(environment | {f"CARILLON_{name}": url.format(port=port)})
        findings = await examine(settings)
    asked = [found for found in findings if found.of == ("Deployment" if check == "tls" else server)]
    told = [found.sentence for found in asked if found.check == (check or "login")]
    assert any(said in sentence for sentence in told), findings
    if check != "tls":
        assert not any("ends in" in found.sentence for found in findings)


async def test_a_connection_in_the_clear_is_a_warning_off_this_machine() -> None:
    for host, level in (("127.0.0.1", Level.OK), ("k1.example.com", Level.WARNING)):
        settings = load({"CARILLON_STREAM_URL": f"kafka://{host}:9092"})
        [found] = await check_tls(Given(Servers(settings, service="test"), ()))
        assert found.level is level
