"""`python -m tests.bench.accept_beside OTHER [--rounds N]`: what accepting costs an API process of this checkout, and
one of another checkout beside it.

Both work on one database and take half of the same requests at the same time, so that whatever the machine does
meanwhile meets both alike. Pairs of runs one after the other (`tests.bench.pairs`) cannot tell 3 % apart here.
`OTHER` is the folder of a checkout in which `make .venv/.dev-ready` was run.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from services.embedded.processes import free_port
from tests.bench import accept, load
from tests.bench.load import Order
from tests.bench.machine import Meter
from tests.bench.pairs import interval
from tests.bench.place import Place, servers
from tests.bench.report import Wrong
from tests.bench.schedules import clock_house
from tests.e2e.house import House

_HERE = Path(__file__).resolve().parents[2]
_REQUESTS, _RATE, _CONNECTIONS, _WARM_UP = 10_000, 2_000, 64, 2_000
_LIMITS = {"CARILLON_API_REQUESTS_PER_SECOND": "10000", "CARILLON_API_PENDING_SCHEDULES": "100000000"}


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accept_beside", description=__doc__)
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=14)
    options = parser.parse_args()
    with servers(keep=True) as endpoints:
        ratios = asyncio.run(_compare(Place(endpoints, 1_000, 1), options.other, options.rounds))
    low, high = interval(ratios)
    print(f"CPU a request, here / there: {median(ratios):.3f}, 95 %: {low:.3f} to {high:.3f}, {len(ratios)} rounds")
    return 0


async def _compare(place: Place, other: Path, rounds: int) -> list[float]:
    async with (
        clock_house(place) as house,
        _api(house, _HERE) as (port, here),
        _api(house, other) as (there_port, there),
    ):
        headers = {
            "authorization": f"Bearer {await asyncio.to_thread(accept.fresh_token, port)}",
            "content-type": "application/json",
        }
        pids, ports = {"here": here.pid, "there": there.pid}, [port, there_port]
        await _accept(ports, headers, pids, _WARM_UP)
        return [await _accept(ports, headers, pids, _REQUESTS) for _ in range(rounds)]


async def _accept(ports: list[int], headers: dict[str, str], pids: dict[str, int], requests: int) -> float:
    """The ratio of the CPU seconds that half of these requests took each."""
    bodies = [json.dumps(item) for item in accept.draw_items(requests, 1)]
    meter = Meter(pids)
    answered = await load.in_a_process(Order(ports, "/schedules", headers, bodies, _RATE, _CONNECTIONS))
    used = meter.used()
    if answered.statuses != {"201": requests}:
        raise Wrong(f"answers by status: {answered.statuses}")
    each = {name: f"{seconds / requests * 2e6:.0f} us" for name, seconds in used.items()}
    print(f"{requests:,} requests: {each}", flush=True)
    return used["here"] / used["there"]


@asynccontextmanager
async def _api(house: House, checkout: Path) -> AsyncIterator[tuple[int, subprocess.Popen[bytes]]]:
    """An API process of this checkout: its port, once it answers, and itself."""
    port = free_port()
    environment = os.environ | house.environment | _LIMITS | {"CARILLON_API_PORT": str(port)}
    command = [str(checkout / ".venv/bin/python"), "-m", "services", "api"]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=checkout, env=environment, stdout=log, stderr=log)
        try:
            async with asyncio.timeout(60):
                while not await _listens(port):
                    await asyncio.sleep(0.1)
            yield port, process
        finally:
            process.terminate()
            process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


if __name__ == "__main__":
    sys.exit(main())
