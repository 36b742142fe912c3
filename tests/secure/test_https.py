"""The API and the health port over HTTPS, with certificates that are exchanged while they serve."""

import asyncio
import ssl
import urllib.error
import urllib.request
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from shared.core.errors import Invalid
from shared.runtime.health import Pages, json_page
from shared.runtime.serving import HttpServer
from shared.runtime.tls import server_context
from tests.stack.certificates import Authority

pytestmark = pytest.mark.secure


class Certificate:
    """A server's files, and how a client trusts them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "server.pem"
        self.renew()

    def renew(self) -> None:
        authority = Authority()
        self.file.write_bytes(authority.issue("api"))
        self.trust = ssl.create_default_context(cadata=authority.pem.decode())


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path)


async def show_health() -> Any:
    return json_page(HTTPStatus.OK, {"alive": True})


def a_server(certificate: Certificate) -> HttpServer:
    context = server_context(str(certificate.file), "", section="health")
    pages = Pages({"/livez": show_health})
    return HttpServer("health", pages, host="127.0.0.1", port=0, certificate=context, lifespan="off")


async def get(server: HttpServer, trust: ssl.SSLContext) -> int:
    def ask() -> int:
        with urllib.request.urlopen(f"https://127.0.0.1:{server.port}/livez", context=trust, timeout=10) as answer:
            return int(answer.status)

    return await asyncio.to_thread(ask)


async def test_new_connections_see_the_new_certificate(certificate: Certificate) -> None:
    server = a_server(certificate)
    await server.start()
    before = certificate.trust
    assert await get(server, before) == 200
    certificate.renew()
    assert await get(server, certificate.trust) == 200
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        await get(server, before)
    await server.stop()


async def test_half_written_files_leave_the_earlier_certificate(certificate: Certificate) -> None:
    server = a_server(certificate)
    await server.start()
    certificate.file.write_text("half")
    assert await get(server, certificate.trust) == 200
    await server.stop()


async def test_plain_http_gets_no_answer(certificate: Certificate) -> None:
    server = a_server(certificate)
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n")
    answer = b""
    with suppress(ConnectionError):
        answer = await reader.read()
    assert not answer.startswith(b"HTTP")
    writer.close()
    await server.stop()


def test_a_certificate_that_cannot_be_used_names_its_setting(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        server_context(str(tmp_path / "none.pem"), "", section="api")
    assert refused.value.field == "api.certificate_file"
