"""RabbitMQ from Debian with its management plugin, as a node that no other node of this machine can meet.

Its node name, ports, folders, cookie, plugin list and even its port mapper (epmd) are its own.
"""

import hashlib
import os
import shutil
import socket
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path

from tests.stack import certificates
from tests.stack.install import apt_install
from tests.stack.server import Command, Missing, Ports, Server

_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_ADMIN = "guest:guest"


class PortMapper(Server):
    """Erlang's epmd, on a port of its own: the system's may not even listen on the loopback, and would outlive us."""

    name = "epmd"

    def install(self) -> None:
        _install()

    def command(self, ports: Ports) -> Command:
        return Command([shutil.which("epmd") or "epmd", "-port", str(ports["client"]), "-address", "127.0.0.1"])

    def healthy(self, ports: Ports) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", ports["client"]), timeout=1) as connection:
                connection.sendall(b"\x00\x01n")  # NAMES_REQ
                return len(connection.recv(4)) == 4
        except OSError:
            return False

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {}


class RabbitServer(Server):
    """The broker; `guest` may do everything, from the loopback only."""

    name = "rabbitmq"
    port_names = ("client", "management", "distribution", "tls", "management_tls")

    def __init__(self) -> None:
        self.mapper = PortMapper()
        self.needs = (self.mapper,)

    def install(self) -> None:
        _install()

    def command(self, ports: Ports) -> Command:
        (self.folder / "rabbitmq.conf").write_text(_configuration(ports))
        (self.folder / "enabled_plugins").write_text("[rabbitmq_management,rabbitmq_auth_mechanism_ssl].\n")
        (self.folder / "environment").touch()
        return Command([str(_SERVER)], env=self._environment(ports))

    def _environment(self, ports: Ports) -> dict[str, str]:
        node = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return inherited | {
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": str(self.mapper.ports()["client"]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"carillon-{node}@localhost",
            "RABBITMQ_DIST_PORT": str(ports["distribution"]),
            "RABBITMQ_CONF_ENV_FILE": str(self.folder / "environment"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOG_BASE": str(self.folder / "logs"),
            "RABBITMQ_LOGS": "-",
            # The node is this very process then, not a child of a shell that would have to pass signals on.
            "RUNNING_UNDER_SYSTEMD": "1",
            # Idle schedulers sleep instead of spinning: the other servers need the cores.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none"
            " -kernel inet_dist_use_interface {127,0,0,1}",
        }

    def healthy(self, ports: Ports) -> bool:
        return _amqp_answers(ports["client"]) and _management_answers(ports["management"])

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {
            "rabbit_url": f"amqp://{_ADMIN}@127.0.0.1:{ports['client']}/",
            "rabbit_management_url": f"http://{_ADMIN}@127.0.0.1:{ports['management']}",
            "rabbit_tls_address": f"127.0.0.1:{ports['tls']}",
            "rabbit_management_tls_address": f"127.0.0.1:{ports['management_tls']}",
        }


def _install() -> None:
    if not _SERVER.exists():
        apt_install("rabbitmq-server", wanted="RabbitMQ")
    if not _SERVER.exists() or shutil.which("epmd") is None:
        raise Missing("rabbitmq-server (Debian's package) is not installed")


def _configuration(ports: Ports) -> str:
    files = certificates.ensure()
    return f"""\
listeners.tcp.default = 127.0.0.1:{ports["client"]}
management.tcp.ip = 127.0.0.1
management.tcp.port = {ports["management"]}
listeners.ssl.default = 127.0.0.1:{ports["tls"]}
ssl_options.cacertfile = {files.ca}
ssl_options.certfile = {files.server}
ssl_options.keyfile = {files.server}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = false
ssl_cert_login_from = common_name
auth_mechanisms.1 = PLAIN
auth_mechanisms.2 = AMQPLAIN
auth_mechanisms.3 = EXTERNAL
management.ssl.ip = 127.0.0.1
management.ssl.port = {ports["management_tls"]}
management.ssl.cacertfile = {files.ca}
management.ssl.certfile = {files.server}
management.ssl.keyfile = {files.server}
loopback_users.guest = true
log.console.level = info
disk_free_limit.absolute = 100MB
vm_memory_high_watermark.absolute = 2GB
collect_statistics_interval = 1000
"""


def _amqp_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(b"AMQP\x00\x00\x09\x01")
            frame = connection.recv(11)
    except OSError:
        return False
    return frame[:1] == b"\x01" and frame[7:11] == b"\x00\x0a\x00\x0a"  # a method frame: connection.start


def _management_answers(port: int) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/vhosts/%2F")
    request.add_header("Authorization", "Basic " + b64encode(_ADMIN.encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=3) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
