"""A process that serves the API and makes callbacks never calls itself."""

from pathlib import Path

import pytest

from services.wiring.process import build_service
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.core.errors import Invalid
from shared.drivers.http import Blocked, Call
from shared.runtime.configuration import load
from shared.runtime.serving import HttpServer


async def opened(folder: Path, **environment: str) -> Servers:
    """The servers of a process that may call this machine. No server is connected to."""
    own = {
        "CARILLON_BROKER_URL": "memory://",
        "CARILLON_STREAM_URL": f"local://{folder}/stream",
        "CARILLON_BLOBS_URL": folder.as_uri(),
        "CARILLON_API_PORT": "0",
        "CARILLON_CALLBACKS_ALLOWED_NETWORKS": "0.0.0.0/0,::/0",
    }
    return Servers(load(own | environment), service="test")


def a_call(url: str) -> Call:
    return Call(url, "POST", {"x-forwarded-email": "admin@example.com"}, b'{"email":"evil@example.com"}', "m1", 1)


@pytest.mark.parametrize("listening", ["127.0.0.1", "0.0.0.0"])
async def test_the_port_that_was_taken_is_not_called(tmp_path: Path, listening: str) -> None:
    servers = await opened(tmp_path, CARILLON_API_HOST=listening)
    [server] = [each for each in build_service("api", Rooms(servers)) if isinstance(each, HttpServer)]
    await server.start()
    for host in ("127.0.0.1", "localhost", "0.0.0.0"):
        with pytest.raises(Blocked, match="own API"):
            await servers.outgoing.call(a_call(f"http://{host}:{server.port}/users"))
    await server.stop()
    await servers.close()


async def test_the_address_and_the_public_name_of_the_settings_are_not_called(tmp_path: Path) -> None:
    public = "https://push.example.com/carillon"
    servers = await opened(
        tmp_path, CARILLON_API_HOST="10.1.2.3", CARILLON_API_PORT="8080", CARILLON_API_PUBLIC_URL=public
    )
    for url in ("http://10.1.2.3:8080/users", "https://push.example.com/carillon/users"):
        with pytest.raises(Blocked, match="own API"):
            await servers.outgoing.call(a_call(url))
    await servers.close()


async def test_a_callback_to_it_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    servers = await opened(
        tmp_path, CARILLON_API_PORT="8080", CARILLON_API_PUBLIC_URL="https://push.example.com/carillon"
    )
    for url in (
        "http://127.0.0.1:8080/users",
        "http://localhost:8080/users",
        "http://[::1]:8080/users",
        "https://push.example.com/carillon/users",
        "https://PUSH.example.com./users",
    ):
        with pytest.raises(Invalid, match="this deployment's own API") as refused:
            servers.check_callback_url(url, field="callback.data.url")
        assert refused.value.field == "callback.data.url"
    servers.check_callback_url("http://127.0.0.1:9090/hook", field="callback.data.url")
    await servers.close()
