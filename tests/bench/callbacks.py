"""How much of what providers tell one API process stores: callbacks about one message each, and posts of many."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from statistics import quantiles

import aiohttp

from services.embedded.processes import free_port
from shared.audience.rules.audiences import KeyRange
from shared.drivers.http.signing import webhook_headers
from shared.drivers.secrets import KeyRing, fresh_key
from shared.jobs.rules.batches import Batch, BatchStatus
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message, entry_id, write_ahead
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.store import Store
from tests.bench.machine import Meter
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.e2e.house import House

_MESSAGES, _BATCH = 20_000, 1_000
_MANY = 100
_CONNECTIONS, _CONNECTIONS_OF_MANY = 64, 8
_RATE = 1_000
_WRITTEN = 200

_POST = "0190b5a2-0000-7000-8000-000000000001"
_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
_JOB, _INCARNATION = "job.callbacks", "callbacks"


async def measure(place: Place) -> list[Measured]:
    """Each message is told of once by itself, and once among others."""
    alone, together = [], []
    for _ in range(place.repeat):
        async with _scene(place) as scene:
            alone.append(await scene.tell("sent", 1, _CONNECTIONS))
            together.append(await scene.tell("delivered", _MANY, _CONNECTIONS_OF_MANY))
            await scene.check({"delivered": _MESSAGES})
    figures = [
        Figure("one a callback", [run.rate for run in alone], "messages/s", Target(_RATE)),
        Figure("99th of 100", [run.p99_ms for run in alone], "ms"),
        *(Figure(f"CPU of {name}", [run.cpu_seconds[name] for run in alone], "s") for name in alone[0].cpu_seconds),
        Figure(f"{_MANY} a callback", [run.rate for run in together], "messages/s"),
    ]
    note = (
        f"{_MESSAGES:,} messages in batches of {_BATCH:,}, by the kind `http`: {_CONNECTIONS} callbacks always in hand "
        f"of one message each, then {_CONNECTIONS_OF_MANY} of {_MANY}; one API process, beside the servers and the "
        "provider on these cores. Checked: all are answered 204, and the tallies say that all are delivered."
    )
    return [Measured("callbacks", figures, [note])]


class Told:
    """How fast it was."""

    def __init__(
        self, messages: int, seconds: float, latencies: Sequence[float], cpu_seconds: dict[str, float]
    ) -> None:
        self.rate = messages / seconds
        self.p99_ms = quantiles(latencies, n=100, method="inclusive")[98]
        self.cpu_seconds = cpu_seconds


class Scene:
    """An API process, and messages that a provider has."""

    def __init__(self, house: House, url: str, pids: dict[str, int]) -> None:
        self._house = house
        self._url = url
        self._pids = pids

    async def tell(self, state: str, many: int, connections: int) -> Told:
        """Tell this of all messages, so many at once."""
        posts, latencies = _posts(state, many), list[float]()
        meter, began = Meter(self._pids), time.perf_counter()
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as web:
            await asyncio.gather(*(self._call(web, posts, latencies) for _ in range(connections)))
        return Told(_MESSAGES, time.perf_counter() - began, latencies, meter.used())

    async def check(self, counts: dict[str, int]) -> None:
        """Raise `Wrong` unless this is what the tallies say."""
        found = (await self._house.servers.store.message_sums.count(_JOB)).tally
        if found != counts:
            raise Wrong(f"the tallies say {found}")

    async def _call(
        self, web: aiohttp.ClientSession, posts: Iterator[tuple[dict[str, str], bytes]], latencies: list[float]
    ) -> None:
        for headers, body in posts:
            began = time.perf_counter()
            async with web.post(self._url, data=body, headers=headers) as answer:
                if answer.status != 204:
                    raise Wrong(f"{answer.status}: {await answer.text()}")
            latencies.append((time.perf_counter() - began) * 1_000)


@asynccontextmanager
async def _scene(place: Place) -> AsyncIterator[Scene]:
    key, port = fresh_key(), free_port()
    async with place.house() as house:
        await _fill(house.servers.store, key)
        api = await house.start("api", CARILLON_API_PORT=str(port), CARILLON_PROVIDERS_SECRET_KEYS=key)
        yield Scene(house, f"http://127.0.0.1:{port}/callbacks/{_POST}", {"the API": api.pid} | place.pids)


async def _fill(store: Store, key: str) -> None:
    now = datetime.now(UTC)
    credential = Credential(
        id=_POST, app_id="app", name="main", kind="http", fields={}, rate=10, max_in_flight=20, test_recipient="t",
        created_by="a", created_at=now, updated_at=now, fingerprint="f",
        secret=KeyRing([key]).seal({"signingSecret": _SECRET}, _POST),
    )  # fmt: skip
    await store.credentials.add(credential)
    for ordinal in range(_MESSAGES // _BATCH):
        batch = Batch(
            job_id=_JOB, ordinal=ordinal, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner="w", turn=1
        )
        await store.batches.add_page([batch])
        for first in range(0, _BATCH, _WRITTEN):
            changes = [
                EntryChange(None, write_ahead(_message(ordinal, row), owner="w", until=now))
                for row in range(first, first + _WRITTEN)
            ]
            if await store.messages.write(batch.id, "w", changes) is not WriteResult.DONE:
                raise Wrong("the messages are not there")


def _message(ordinal: int, row: int) -> Message:
    number = ordinal * _BATCH + row
    return Message(
        id=entry_id(_INCARNATION, ordinal, row), app_id="app", credential_id=_POST, to=f"ana{number}@example.com"
    )


def _posts(state: str, many: int) -> Iterator[tuple[dict[str, str], bytes]]:
    """Signed callbacks about all messages, made beforehand."""
    at, keys = int(time.time()), [f"{_message(*divmod(number, _BATCH)).id}~1" for number in range(_MESSAGES)]
    made = []
    for first in range(0, _MESSAGES, many):
        body = json.dumps([{"message": key, "state": state} for key in keys[first : first + many]]).encode()
        made.append((webhook_headers(f"e{first}", at, body, _SECRET), body))
    return iter(made)
