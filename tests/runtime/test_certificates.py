"""When certificates end: ours as we read them, a server's as it shows it."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shared.runtime.server_settings import TlsSettings
from shared.runtime.tls import client_context, read_end, server_context
from tests.samples import sample

NOW = datetime.now(UTC).replace(microsecond=0)


def certificate(key: ec.EllipticCurvePrivateKey, ends: datetime) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(1990, 1, 1, tzinfo=UTC))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )


def files(folder: Path, ends: datetime) -> tuple[str, str]:
    """A certificate and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (folder / "certificate.pem").write_bytes(certificate(key, ends).public_bytes(serialization.Encoding.PEM))
    return str(folder / "certificate.pem"), str(folder / "key.pem")


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2068, 2090, 9999])
def test_the_end_is_that_of_the_certificate(year: int) -> None:
    ends = datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)
    made = certificate(ec.generate_private_key(ec.SECP256R1()), ends)
    assert read_end(made.public_bytes(serialization.Encoding.DER)) == ends


async def connect(port: int, trust: ssl.SSLContext) -> None:
    _, writer = await asyncio.open_connection("localhost", port, ssl=trust)
    writer.close()
    await writer.wait_closed()


async def test_a_file_and_the_server_that_shows_it_are_noted_and_again_when_it_is_renewed(tmp_path: Path) -> None:
    ends = NOW + timedelta(days=10)
    own, key = files(tmp_path, ends)
    shown = server_context(own, key, section="api")
    assert sample("certificate_expiry_timestamp_seconds", of="api.certificate_file") == ends.timestamp()
    server = await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0, ssl=shown)
    async with server:
        port = server.sockets[0].getsockname()[1]
        await connect(port, client_context(TlsSettings(ca_file=own)))
        assert sample("certificate_expiry_timestamp_seconds", of="localhost") == ends.timestamp()

        renewed = NOW + timedelta(days=100)
        files(tmp_path, renewed)
        await connect(port, client_context(TlsSettings(ca_file=own)))
    assert sample("certificate_expiry_timestamp_seconds", of="api.certificate_file") == renewed.timestamp()
    assert sample("certificate_expiry_timestamp_seconds", of="localhost") == renewed.timestamp()


async def test_what_a_driver_that_blocks_is_shown_is_noted_too(tmp_path: Path) -> None:
    ends = NOW + timedelta(days=33)
    own, key = files(tmp_path, ends)

    def ask(port: int) -> None:
        import socket

        with (
            socket.create_connection(("localhost", port)) as plain,
            client_context(TlsSettings(ca_file=own)).wrap_socket(plain, server_hostname="localhost"),
        ):
            pass

    shown = server_context(own, key, section="health")
    server = await asyncio.start_server(lambda _, writer: writer.close(), "localhost", 0, ssl=shown)
    async with server:
        await asyncio.to_thread(ask, server.sockets[0].getsockname()[1])
    assert sample("certificate_expiry_timestamp_seconds", of="localhost") == ends.timestamp()


def test_our_own_certificate_for_servers_is_noted(tmp_path: Path) -> None:
    ends = NOW + timedelta(days=5)
    own, key = files(tmp_path, ends)
    client_context(TlsSettings(ca_file=own, certificate_file=own, key_file=key))
    assert sample("certificate_expiry_timestamp_seconds", of="tls.certificate_file") == ends.timestamp()
