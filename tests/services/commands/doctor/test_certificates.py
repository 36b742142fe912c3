"""What the doctor finds of certificates, on servers that show them."""

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

from services.commands.doctor.certificates import find_certificate, judge_certificate
from services.commands.doctor.chosen import select_examinations
from services.commands.doctor.findings import Level
from services.commands.doctor.postgresql import PostgreSql
from services.connections import Capabilities
from shared.runtime.configuration import load

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
    """A server that shows it; as PostgreSQL does, if it is `greeted` first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if greeted:
                await reader.readexactly(8)
                writer.write(b"S")
                await writer.start_tls(context)
            await reader.read()
        except (OSError, EOFError):
            pass
        finally:
            writer.close()

    async with await asyncio.start_server(serve, HERE, 0, ssl=None if greeted else context) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("days", "address", "trusted", "level", "said"),
    [
        (90, HERE, True, Level.OK, "is good for 90 days"),
        (5, HERE, True, Level.WARNING, "ends in 5 days"),
        (-1, HERE, True, Level.FAULT, "expired"),
        (90, "10.9.8.7", True, Level.FAULT, "IP address mismatch"),
        (90, HERE, False, Level.FAULT, "self-signed certificate"),
    ],
)
async def test_a_certificate(
    tmp_path: Path, days: float, address: str, *, trusted: bool, level: Level, said: str
) -> None:
    file = certificate(tmp_path, days=days, address=address)
    trust = ssl.create_default_context(cafile=str(file) if trusted else None)
    for greeted in (False, True):
        async with showing(file, greeted=greeted) as port:
            greeting = PostgreSql.tls_greeting if greeted else b""
            [opinion] = judge_certificate("here", await find_certificate(HERE, port, trust=trust, greeting=greeting))
        assert opinion.level is level, opinion
        assert said in opinion.sentence


async def test_a_server_that_speaks_no_tls() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.com\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, HERE, 0) as server:
        port = server.sockets[0].getsockname()[1]
        [opinion] = judge_certificate("here", await find_certificate(HERE, port, trust=ssl.create_default_context()))
    assert opinion.level is Level.FAULT
    assert "no TLS connection can be made" in opinion.sentence


async def test_a_connection_in_the_clear_is_a_warning_off_this_machine() -> None:
    here, elsewhere = "kafka://127.0.0.1:9092", "kafka://k1.example.com:9092"
    for url, level in ((here, Level.OK), (elsewhere, Level.WARNING)):
        settings = load({"CARILLON_STREAM_URL": url})
        capabilities = Capabilities(settings, service="doctor")
        [kafka] = [each for each in select_examinations(capabilities) if each.of == "Kafka"]
        [opinion] = await kafka.check_tls()
        await capabilities.close()
        assert opinion.level is level, opinion
