"""Debian's Prometheus, as programs: promtool, and a server on the loopback that a test starts and ends."""

import asyncio
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from services.embedded.processes import free_port
from tests.stack import MissingPart
from tests.stack.install import need_program
from tests.stack.server import Missing
from tests.waiting import until

PACKAGE = "prometheus"


def program(name: str) -> str:
    """Where the program is. Raises `MissingPart`."""
    try:
        return need_program(name, PACKAGE)
    except Missing as reason:
        raise MissingPart(f"{name}: {reason}") from None


def promtool(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """What promtool says."""
    command = [program("promtool"), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=50, check=False)


class Prometheus:
    """A server that scrapes; asked by its HTTP API."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    async def ask(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now. Fails where Prometheus does not understand it."""
        answer = await asyncio.to_thread(self._get, "/api/v1/query?" + urlencode({"query": expression}))
        assert answer["status"] == "success", answer
        result = answer["data"]["result"]
        assert answer["data"]["resultType"] == "vector", answer
        found: list[dict[str, Any]] = result
        return found

    async def is_ready(self) -> bool:
        try:
            (await asyncio.to_thread(urllib.request.urlopen, self._base + "/-/ready", timeout=50)).close()
        except OSError:
            return False
        return True

    async def sees_all(self, targets: int) -> bool:
        return len(await self.ask("up == 1")) == targets

    def _get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(self._base + path, timeout=50) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())


@asynccontextmanager
async def scraping(folder: Path, ports: Sequence[int], rules: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus that looks at the processes with these health ports every second."""
    port = free_port()
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": "carillon", "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in ports]}]}
        ],
    }
    (folder / "prometheus.yaml").write_text(json.dumps(configuration))
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program("prometheus"),
            f"--config.file={folder / 'prometheus.yaml'}",
            f"--storage.tsdb.path={folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=log,
            stderr=log,
        )
    try:
        prometheus = Prometheus(port)
        await until(prometheus.is_ready, f"Prometheus: {(folder / 'prometheus.log').read_text()[-400:]}")
        await until(lambda: prometheus.sees_all(len(ports)), "Prometheus to see all processes")
        yield prometheus
    finally:
        process.kill()
        await asyncio.wait_for(process.wait(), 50)
