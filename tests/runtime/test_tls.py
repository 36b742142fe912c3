"""Contexts that begin each connection by the files as they are then."""

import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shared.core.errors import Invalid
from shared.runtime.server_settings import NO_FILES, TlsSettings
from shared.runtime.tls import client_context, server_context
from tests.stack.certificates import Authority


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext, name: str = "127.0.0.1") -> str:
    """A whole handshake in memory; the version agreed upon."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there, server_side=False, server_hostname=name)
    theirs = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ours.version() or ""


def write(folder: Path, authority: Authority) -> TlsSettings:
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "own.pem").write_bytes(authority.issue("own"))
    return TlsSettings(ca_file=str(folder / "ca.pem"), certificate_file=str(folder / "own.pem"))


def test_both_sides_use_renewed_files(tmp_path: Path) -> None:
    tls = write(tmp_path, Authority())
    client, server = client_context(tls), server_context(tls.certificate_file, "", section="api")
    assert server is not None
    assert shake_hands(client, server) == "TLSv1.3"
    write(tmp_path, Authority("another"))
    assert shake_hands(client, server) == "TLSv1.3"


def test_what_a_file_no_longer_holds_is_trusted_no_longer(tmp_path: Path) -> None:
    first = Authority()
    tls = write(tmp_path, first)
    client = client_context(tls)
    (tmp_path / "server.pem").write_bytes(first.issue("server"))
    server = server_context(str(tmp_path / "server.pem"), "", section="api")
    assert server is not None
    assert shake_hands(client, server)
    write(tmp_path, Authority("another"))
    with pytest.raises(ssl.SSLCertVerificationError, match="an authority that we do not know"):
        shake_hands(client, server)


def test_files_that_cannot_be_used_leave_the_earlier_ones(tmp_path: Path) -> None:
    tls = write(tmp_path, Authority())
    client, server = client_context(tls), server_context(tls.certificate_file, "", section="api")
    assert server is not None
    (tmp_path / "own.pem").write_text("half")
    (tmp_path / "ca.pem").unlink()
    with capture_logs() as logs:
        assert shake_hands(client, server)
        assert shake_hands(client, server)
    assert [entry["log_level"] for entry in logs] == ["warning"] * 2  # once for each of the two
    write(tmp_path, Authority())
    assert shake_hands(client, server)


@pytest.mark.parametrize("field", ["ca_file", "certificate_file"])
def test_files_that_are_missing_name_their_setting(tmp_path: Path, field: str) -> None:
    with pytest.raises(Invalid) as refused:
        client_context(TlsSettings(**{field: str(tmp_path / "none.pem")}))  # type: ignore[arg-type]
    assert refused.value.field == f"tls.{field}"


def test_the_oldest_version_is_1_2_and_names_are_verified() -> None:
    client = client_context(NO_FILES)
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert client.check_hostname
    inner = vars(client)["_current"]
    assert inner.minimum_version is ssl.TLSVersion.TLSv1_2
    assert (inner.verify_mode, inner.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_without_a_certificate_there_is_no_https() -> None:
    assert server_context("", "", section="api") is None
