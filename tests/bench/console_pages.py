"""What the pages of the dashboard cost where there is much: each whole, and as it asks for itself."""

import re
from statistics import quantiles

from services.api.http.pages.routes import PageRoute
from services.api.http.pages.visits import INNER
from services.wiring.api import build_api
from shared.jobs.rules.jobs import Job
from tests.bench.asker import Asker, Loaded, open_api
from tests.bench.console_data import BATCHES, Amounts
from tests.bench.explained import Commands, explain
from tests.bench.place import ADMIN
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.bench.schedules import NAMESPACE, database
from tests.e2e.house import House
from tests.services.api.client import Client
from tests.services.api.http.pages.addresses import InnerReads, address_of, make_some, page_routes

_TIMES, _MADE = 100, 20
_FEWEST, _MOST_MS = 3, 20_000
"""A slow page is loaded less often: for up to `_MOST_MS`, and at least `_FEWEST` times."""
_P99_MS, _KEYS, _FIRST_BYTES, _REFRESH_BYTES = 100, 5_000, 150_000, 15_000
_DIGEST = re.compile(rb'data-digest="(\w+)"')
_FILE = re.compile(rb'(?:href|src)="(/ui/files/[^"]+)"')
_NEW, _NOTHING, _AWAY = 200, 204, 503


async def measure_pages(house: House, commands: Commands, running: Job, amounts: Amounts) -> list[Measured]:
    """Every page of `build_pages`. `running` is a job with many batches; of all else some are made here."""
    client = Client(build_api(house.rooms), {"x-forwarded-email": ADMIN})
    store, file = house.servers.store, await house.file(b"Recipient\nana@example.com\n", "people.csv")
    made = await make_some(client, store, NAMESPACE, house.app_id, file, count=_MADE, many=_MADE)
    made |= {"app_id": running.app_id, "job_id": str(running.id)}
    pages = [(route, address_of(route, made)) for route in page_routes(house.rooms)]
    async with open_api(house) as asker:
        times = [figure for route, path in pages for figure in await _time_page(asker, route, path)]
        sizes = [await _measure_first_load(asker)]
    reads = client.app.state[INNER] = InnerReads(client.app.state[INNER])
    costs = [figure for route, path in pages for figure in await _count(house, client, commands, reads, route, path)]
    note = (
        f"{amounts.things:,} jobs, dead letters and audit records, {amounts.schedules:,} schedules, a running job with "
        f"{BATCHES:,} batches, and {_MADE} of everything else. Each page is asked {_TIMES} times over one connection "
        "to an API process, within 20 s, and so is each that asks for itself, as it does: with what it shows (most "
        "answer 204) and without. Checked: each whole page is a 200."
    )
    asked = (
        "The same pages in this process, opened a second time: how many routes each asks, how many queries reach "
        "MongoDB, and the keys that the dearest of them examines, as the database explains it."
    )
    return [
        Measured("console: pages", times + sizes, [note]),
        Measured("console: what pages ask", costs, [asked]),
    ]


async def _time_page(asker: Asker, route: PageRoute, path: str) -> list[Figure]:
    if (first := await asker.load(path)).status == _AWAY:
        return [Figure(f"{route.path}, not answered in time", [first.took], "ms", Target(_P99_MS, at_most=True))]
    whole = await _load_often(asker, path)
    figures = _percentiles(route.path, whole)
    figures.append(Figure(f"{route.path}, compressed", [max(each.size for each in whole)], "bytes"))
    found = _DIGEST.search(whole[-1].content)
    if not route.refresh_seconds or found is None:
        return figures
    fresh = await _load_often(asker, path, hx_request="true")
    still = await _load_often(asker, path, hx_request="true", x_shown=found[1].decode())
    figures += _percentiles(f"{route.path}, refresh", fresh)
    size = max(each.size for each in fresh)
    figures.append(Figure(f"{route.path}, refresh, compressed", [size], "bytes", Target(_REFRESH_BYTES, at_most=True)))
    figures += _percentiles(f"{route.path}, refresh with what is shown", still)
    alike = sum(each.status == _NOTHING for each in still)
    return [*figures, Figure(f"{route.path}, of these 204", [alike], f"of {len(still)}")]


async def _load_often(asker: Asker, path: str, **headers: str) -> list[Loaded]:
    loaded: list[Loaded] = []
    while len(loaded) < _TIMES and (len(loaded) < _FEWEST or sum(each.took for each in loaded) < _MOST_MS):
        loaded.append(await asker.load(path, **headers))
    right = {_NEW, _AWAY} | ({_NOTHING} if headers else set())
    if wrong := [each for each in loaded if each.status not in right]:
        raise Wrong(f"{path}: {wrong[0].status} {wrong[0].content[:300]!r}")
    return loaded


def _percentiles(what: str, loaded: list[Loaded]) -> list[Figure]:
    percent = quantiles([each.took for each in loaded], n=100, method="inclusive")
    return [
        Figure(f"{what}, median", [percent[49]], "ms"),
        Figure(f"{what}, 99th of {_TIMES}", [percent[98]], "ms", Target(_P99_MS, at_most=True)),
    ]


async def _measure_first_load(asker: Asker) -> Figure:
    """The first page, and all files that it names."""
    page = await asker.load("/ui")
    files = sorted({name.decode() for name in _FILE.findall(page.content)})
    if not files:
        raise Wrong("the first page names no files")
    size = page.size + sum([(await asker.load(file)).size for file in files])
    return Figure("first load, with styles and scripts", [size], "bytes", Target(_FIRST_BYTES, at_most=True))


async def _count(
    house: House, client: Client, commands: Commands, reads: InnerReads, route: PageRoute, path: str
) -> list[Figure]:
    await client.get(path)
    commands.take()
    reads.count = 0
    reply = await client.get(path)
    if reply.status == _AWAY:
        return []
    if reply.status != _NEW:
        raise Wrong(f"{path}: {reply.status} {reply.body[:300]!r}")
    asked = commands.take()
    told = await explain(database(house), asked)
    unknown = f", {told.unknown} of {told.queries} not explained" if told.unknown else ""
    return [
        Figure(f"{route.path}, reads of routes", [reads.count]),
        Figure(f"{route.path}, queries", [len(asked)]),
        Figure(f"{route.path}, examined{unknown}", [told.keys], "keys", Target(_KEYS, at_most=True)),
    ]
