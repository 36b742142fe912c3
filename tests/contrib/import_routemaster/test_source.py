"""A Routemaster as it is read: over TLS alone, from one that we trust, and whatever it answers."""

from pathlib import Path

import pytest

from carillon_imports.routemaster.source import OldBus, open_routemaster
from shared.core.errors import Invalid, Unavailable
from shared.runtime.server_settings import NO_FILES, TlsSettings
from tests.contrib.import_routemaster.routemaster import ROOT, Routemaster, running
from tests.drivers.http.receiver import serving_tls
from tests.stack.certificates import Authority

pytestmark = pytest.mark.imports


async def read(old: Routemaster, tls: TlsSettings = NO_FILES) -> OldBus:
    async with open_routemaster(old.url, ROOT, tls) as routemaster:
        return await routemaster.read()


async def test_it_is_read_over_tls_from_one_that_we_trust(tmp_path: Path) -> None:
    authority, ca, certificate = Authority(), tmp_path / "ca.pem", tmp_path / "old.pem"
    ca.write_bytes(authority.pem)
    certificate.write_bytes(authority.issue("old"))
    async with running(serving_tls(certificate)) as old:
        assert await read(old, TlsSettings(ca_file=str(ca))) == OldBus([], [], [])
        old.tokens["alice--1"] = "alice"
        [token] = (await read(old, TlsSettings(ca_file=str(ca)))).tokens
        assert (token.name, token.secret) == ("alice", "alice--1")
        assert "alice--1" not in repr(token)
        asked = len(old.asked)
        with pytest.raises(Unavailable, match="an authority that we do not know"):
            await read(old)
        assert len(old.asked) == asked, "the key has not left"


@pytest.mark.parametrize(
    ("status", "body", "error", "said"),
    [
        (200, b"{}", Invalid, "answers what no Routemaster does"),
        (200, b'[{"token": 7}]', Invalid, "answers what no Routemaster does"),
        (200, b"[" * 100_000, Invalid, "answers what no Routemaster does"),
        (302, b"", Invalid, "answers 302"),
        (403, b"", Invalid, "does not take this key"),
        (503, b"", Unavailable, "answers 503"),
    ],
)
async def test_what_is_no_answer_is_told(status: int, body: bytes, error: type[Exception], said: str) -> None:
    async with running() as old:
        old.instead = status, body
        with pytest.raises(error, match=said):
            await read(old)
