"""Ports for servers that are about to start."""

import socket
from concurrent.futures import ThreadPoolExecutor

from services.embedded import processes


def test_servers_that_start_at_once_are_given_ports_of_their_own() -> None:
    with ThreadPoolExecutor(8) as threads:
        ports = list(threads.map(lambda _: processes.free_port(), range(200)))
    assert len(set(ports)) == len(ports)


def test_a_port_on_which_somebody_listens_is_not_given() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", processes.free_port()))
        taken.listen()
        assert not processes.is_free("127.0.0.1", taken.getsockname()[1])
