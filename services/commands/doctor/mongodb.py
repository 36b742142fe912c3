"""The questions to MongoDB."""

from collections.abc import Callable
from datetime import timedelta
from urllib.parse import unquote, urlsplit

from services.commands.doctor.examination import ADDRESS, ROUND_TRIP, TLS, Address, Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, name_some, warn, well
from services.commands.doctor.shell import INIT, chain, command, mongosh
from shared.domain.errors import Unavailable
from shared.domain.schema import VERSION, Stamp, TooOld, check_stamp
from shared.store import Store
from shared.store.indexes import CollectionIndex
from shared.store.inspection import IndexComparison, store_addresses, store_uses_tls

MONGODB = "MongoDB"
MOST_SKEW = timedelta(seconds=1)
Dropping = Callable[[CollectionIndex], str]

NEEDED = ("find", "insert", "update", "remove", "createIndex", "createCollection", "listIndexes", "listCollections")


class MongoDb(Examination):
    """The store."""

    of = MONGODB
    setting = "store.url"

    def __init__(self, url: str, store: Store) -> None:
        parts = urlsplit(url)
        self._url = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
        self._user = unquote(parts.username or "")
        self._store = store
        self._inspection = store.inspection
        self.where = self._url.partition("://")[2]
        self.addresses = [Address(*place) for place in store_addresses(url)]
        self.uses_tls = store_uses_tls(url)

    async def check_login(self) -> Opinions:
        """It lets us in."""
        version = await self._inspection.read_version()
        return well(f"MongoDB {version} lets us in")

    async def check_rights(self) -> Opinions:
        """Our user may do all that we do."""
        grants = await self._inspection.read_grants(NEEDED)
        if not grants.user:
            if all(address.is_loopback for address in self.addresses):
                return well("MongoDB needs no login; it is on this machine")
            return warn("MongoDB needs no login: every program that reaches it can read and change all")
        if not grants.missing:
            return well(f"{grants.user} may do all that Carillon does")
        database = urlsplit(self._url).path[1:]
        role = f'[{{role: "readWrite", db: "{database}"}}]'
        return fault(
            f"{grants.user} may not {', '.join(grants.missing)}",
            mongosh(
                self._url,
                "<admin>",
                f'db.getSiblingDB("{grants.database}").grantRolesToUser("{grants.user}", {role})',
            ),
        )

    async def ping(self) -> None:
        await self._store.ping()

    async def check_replica_set(self) -> Opinions:
        """It is one member of a replica set at least: there are no transactions without."""
        membership = await self._inspection.read_membership()
        if membership.is_router:
            return well("a router of a sharded cluster (mongos): it has transactions")
        if name := membership.replica_set:
            return well(f"a member of the replica set {name}: it has transactions")
        return fault(
            "the server is no member of a replica set: it has no transactions. Start it with --replSet, then",
            mongosh(self._url, self._user, "rs.initiate()"),
        )

    async def check_writes(self) -> Opinions:
        """A majority takes writes."""
        await self._inspection.write_nothing()
        return well("a majority of its members takes writes")

    async def check_sessions(self) -> Opinions:
        """It ends sessions for us."""
        try:
            await self._inspection.end_no_session()
        except Unavailable as error:
            return fault(
                f"killSessions does not work ({error}). Workers need it to take up batches of killed workers. Atlas "
                "has it from M10 on"
            )
        return well("it ends sessions of killed processes for us")

    async def check_updates(self) -> Opinions:
        """An update that changes nothing does not count as a change."""
        if await self._inspection.count_equal_updates():
            return fault(
                "an update that leaves a document as it is counts as a change: a replaced worker would overwrite what "
                "its successor has stored. Use MongoDB, which does not count it"
            )
        return well("an update that leaves a document as it is does not count as a change")

    async def check_clock(self) -> Opinions:
        """Its clock and ours agree."""
        skew = (await self._inspection.read_membership()).skew
        if abs(skew) < MOST_SKEW:
            return well("its clock and ours differ by less than a second")
        seconds = abs(skew.total_seconds())
        side = "behind" if skew > timedelta() else "ahead of"
        return warn(f"our clock is {seconds:.1f} s {side} the database's", command("timedatectl", "set-ntp", "true"))

    async def check_stamp(self) -> Opinions:
        """This release works with what is stored."""
        return judge_stamp(await self._store.schema.read())

    async def check_indexes(self) -> Opinions:
        """Every index is there, and no others are."""
        return judge_indexes(await self._inspection.compare_indexes(), self._drop)

    def _drop(self, index: CollectionIndex) -> str:
        return mongosh(self._url, self._user, f'db.getCollection("{index.collection}").dropIndex("{index.name}")')

    questions = (
        ADDRESS,
        Question(
            "login",
            "MongoDB accepts the user and the password of `store.url`. If not, one of them is wrong.",
            check_login,
            first=True,
        ),
        ROUND_TRIP,
        TLS,
        Question(
            "rights",
            "The user may read and change the database and make its indexes (`readWrite` is enough). A database "
            "without logins is a warning, unless it is on this machine.",
            check_rights,
        ),
        Question(
            "replica set",
            "The server is a `mongos` or a member of a replica set, even of one member: feedback needs transactions.",
            check_replica_set,
        ),
        Question(
            "majority",
            "A majority of the members takes writes: Carillon waits for one with each write. If not, which members are "
            "away? The doctor writes to no document.",
            check_writes,
        ),
        Question(
            "sessions",
            "The server runs `killSessions` for our user: workers need it to take over the work of a killed worker. It "
            "reaches sessions of the same user alone, so all processes log in as one user. The doctor tries it with a "
            "random id.",
            check_sessions,
        ),
        Question(
            "updates",
            "An update that leaves a document as it is does not count as a change (`modifiedCount`): by that a worker "
            "notices that another has replaced it. MongoDB counts so; servers like it may not. The doctor "
            "updates the stamp of the database to what it is.",
            check_updates,
        ),
        Question(
            "clock",
            "The clock of this machine and the database's differ by less than a second. Schedules go by the "
            "database's; logs and certificates go by ours.",
            check_clock,
        ),
        Question(
            "stamp",
            "`carillon init` of this release has been run on the database, and no later release has shut this one "
            "out (`docs/upgrading.md`).",
            check_stamp,
        ),
        Question(
            "indexes",
            "Every index that `carillon init` makes is there: without one, queries read whole collections. An unknown "
            "index is a warning, because each write pays for it.",
            check_indexes,
        ),
    )


def judge_stamp(stamp: Stamp | None) -> Opinions:
    """The opinions on the stamp of the database, for this release."""
    if stamp is None:
        return fault("the database is not set up", INIT)
    try:
        check_stamp(stamp)
    except TooOld as error:
        return fault(str(error))
    if stamp.version < VERSION:
        return fault(f"the database is of version {stamp.version}, and this release works with {VERSION}", INIT)
    later = f", set up by a later release (version {stamp.version})" if stamp.version > VERSION else ""
    return well(f"this release works with the database{later}")


def judge_indexes(found: IndexComparison, drop: Dropping) -> Opinions:
    """Remedies for the indexes."""
    opinions: list[Opinion] = []
    for index in found.other:
        sentence = f"another index stands in the place of one that we need ({index})"
        opinions += fault(sentence, chain(drop(index), INIT))
    if found.missing and not found.other:
        opinions += fault(f"missing: {name_some([str(index) for index in found.missing])}", INIT)
    elif found.collections and not found.other:
        opinions += fault(f"missing collections: {name_some(found.collections)}", INIT)
    for index in found.foreign:
        opinions += warn(f"nothing of Carillon uses this index, and each write pays for it ({index})", drop(index))
    return opinions or well(f"all {found.made} are there, and no others")
