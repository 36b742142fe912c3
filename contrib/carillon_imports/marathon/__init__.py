"""`carillon import marathon`: apps, users, templates and jobs of a Marathon database, with their ids.

Safe to repeat and to interrupt. An existing equal thing is left alone. A thing that has changed at the source is
updated, unless it was changed here too. A thing that was deleted here does not come back (`verdicts`). Deletions at the
source are not followed. Ended jobs become history. A job whose start lies ahead comes only on request, because both
systems would send it; from then on it belongs to Carillon. Other unfinished jobs are listed with advice. `status` and
`events` of jobs are not imported.

The command line names the source, which is opened here rather than in `services.wiring.servers` because it belongs to
no service.
"""

from collections.abc import AsyncIterator
from typing import TypeVar

from carillon_imports.carry import Carrier, ImportedKind, ImportOptions
from carillon_imports.marathon.jobs import JobsKind, Starts
from carillon_imports.marathon.kinds import AppsKind, Names, TemplatesKind, UsersKind
from carillon_imports.marathon.source import Row, open_source
from carillon_imports.report import ImportTally, display
from services.wiring.rooms import Rooms
from services.wiring.servers import Servers
from shared.core.instants import ns
from shared.drivers.mongo.documents import Identified

TABLES = ("apps", "users", "templates", "jobs")

R = TypeVar("R", bound=Row)
T = TypeVar("T", bound=Identified)


async def bring(source: str, servers: Servers, *, options: ImportOptions, scheduled: bool = False) -> ImportTally:
    """Import the Marathon database at this URL; with `scheduled`, jobs that wait for their start there will start
    here."""
    async with open_source(source, servers.settings.tls) as marathon:
        if not options.dry_run:
            await servers.store.setup()
        tally = ImportTally(options.record)
        store, names, now_ns = servers.store, Names(), ns(await servers.time.now())
        flow = Rooms(servers).jobs.flow
        starts = Starts(store, servers.audience, flow, now_ns=now_ns, look_for_templates=not options.dry_run)
        with display(await marathon.counts()) as show:

            async def carry(kind: ImportedKind[R, T], pages: AsyncIterator[list[R]]) -> None:
                await Carrier(kind, store.imports, tally, dry_run=options.dry_run).carry(pages, show)

            await carry(AppsKind(store, names), marathon.apps())
            await carry(UsersKind(store), marathon.users())
            await carry(TemplatesKind(store, names), marathon.templates())
            await carry(JobsKind(store, names, starts, now_ns=now_ns, scheduled=scheduled), marathon.jobs())
    return tally
