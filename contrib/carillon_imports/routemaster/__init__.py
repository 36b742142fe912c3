"""`carillon import routemaster`: tokens, owners of topics and subscriptions of a Routemaster, by its API.

Safe to repeat and to interrupt, as every import (`verdicts`). Three lists are read completely before anything is
written. Tokens stay the same, so a client only needs a new `url`. A topic without a publisher comes with its
subscribers. Waiting events, counts and health are not imported.
"""

from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from carillon_imports.carry import Carrier, ImportedKind, ImportOptions
from carillon_imports.report import ImportTally, display
from carillon_imports.routemaster.kinds import Clients, SubscribersKind, TokensKind, TopicsKind
from carillon_imports.routemaster.source import open_routemaster
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.drivers.mongo.documents import Identified

TABLES = ("tokens", "topics", "subscribers")

_AT_ONCE = 100

R = TypeVar("R", bound=Identified)
T = TypeVar("T", bound=Identified)


async def bring(url: str, root_key: str, servers: Servers, *, options: ImportOptions) -> ImportTally:
    """Import the Routemaster at this URL, whose root has this key."""
    async with open_routemaster(url, root_key, servers.settings.tls) as routemaster:
        old = await routemaster.read()
    if not options.dry_run:
        await servers.store.setup()
    tally = ImportTally(options.record)
    counts = {"tokens": len(old.tokens), "topics": len(old.topics), "subscribers": len(old.subscribers)}
    store, settings, clients = servers.store, servers.settings, Clients()
    bus = Rooms(servers).bus
    with display(counts) as show:

        async def carry(kind: ImportedKind[R, T], rows: Sequence[R]) -> None:
            await Carrier(kind, store.imports, tally, dry_run=options.dry_run).carry(_pages(rows), show)

        await carry(TokensKind(store, clients, servers.clock), old.tokens)
        await carry(TopicsKind(store, clients, bus.topics, most=settings.bus.topics_per_namespace), old.topics)
        await carry(SubscribersKind(store, clients, bus.subscribing, settings), old.subscribers)
    return tally


async def _pages(rows: Sequence[R]) -> AsyncIterator[list[R]]:
    for start in range(0, len(rows), _AT_ONCE):
        yield list(rows[start : start + _AT_ONCE])
