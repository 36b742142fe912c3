"""How much of an account's rate is used, and that it is never exceeded, as the provider sees it: a process with a clock
of its own."""

import asyncio
import secrets
from math import ceil

from services.worker.messages.dispatch import DispatchEnd
from shared.store import Store
from tests.bench.place import Place
from tests.bench.report import Figure, Measured, Target, Wrong
from tests.providers.fakes import fake_process
from tests.providers.rules import Rule
from tests.services.worker.messages.account import account_at, most_in_a_second, used_share

_RATES = (10, 100, 500, 1_000)
_SECONDS = 15
_WORKERS = (1, 3)
_USED = 97


async def measure(place: Place) -> list[Measured]:
    """Messages of one account over HTTP, ledger and all."""
    figures = []
    for rate in _RATES:
        for workers in _WORKERS:
            runs = [await _run(place, rate, workers) for _ in range(place.repeat)]
            what = f"{rate:,}/s, {workers} worker{'s' * (workers > 1)}"
            most = [seen for seen, _ in runs]
            figures.append(Figure(f"{what}: most in a second", most, "calls", Target(rate, at_most=True)))
            figures.append(Figure(f"{what}: used", [used for _, used in runs], "%", Target(_USED)))
    note = (
        f"{_SECONDS} s of each rate; the provider answers after 200 ms. All workers stand in one process, beside the "
        "servers and the provider on these cores: what the provider's process notes late counts as late. Checked: each "
        "message came once, and the ledger says that all are sent."
    )
    return [Measured("account rate", figures, [note])]


async def _run(place: Place, rate: float, workers: int) -> tuple[float, float]:
    """The most calls within a second, and the share of the rate that was used (percent)."""
    store = Store.open(f"{place.servers.mongo_url}/carillon_{secrets.token_hex(4)}")
    await store.setup()
    count = ceil(rate * _SECONDS / workers)
    slowly = Rule(status=202, delay_seconds=0.2)
    try:
        async with (
            fake_process("http_fake") as fake,
            account_at(store, fake, rate=rate, answering=slowly) as account,
        ):
            senders = [await account.worker(ordinal) for ordinal in range(workers)]
            ends = await asyncio.gather(*(one.start(account.messages(n, count)) for n, one in enumerate(senders)))
            arrivals, tally = await account.arrivals(), await account.tally()
        if set(ends) != {DispatchEnd.DONE} or len({message for _, message in arrivals}) < len(arrivals):
            raise Wrong(f"{ends}, {len(arrivals)} calls")
        if tally != {"sent": count * workers}:
            raise Wrong(f"the ledger says {tally}")
        return most_in_a_second(arrivals), 100 * used_share(arrivals, rate)
    finally:
        await store._client.drop_database(store._database.name)
        await store.close()
