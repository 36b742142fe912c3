"""The questions to MongoDB."""

from datetime import timedelta
from urllib.parse import unquote, urlsplit

from services.commands.doctor.questions import (
    INIT,
    LOGIN,
    Answer,
    Finding,
    Given,
    Question,
    Subject,
    command,
    fault,
    name_some,
    reach,
    warn,
    well,
    without_login,
)
from shared.core.documents import VERSION, Stamp, TooOld, check_stamp
from shared.core.errors import Unavailable, Unserved
from shared.drivers.mongo.database import IndexComparison, store_addresses
from shared.runtime.weaknesses import is_local

MOST_SKEW = timedelta(seconds=1)
_NEEDED = ("find", "insert", "update", "remove", "createIndex", "createCollection", "listIndexes", "listCollections")


async def check_login(given: Given) -> Answer:
    """MongoDB can be reached, and accepts the user and the password of `store.url`."""
    away = await reach(*store_addresses(given.settings.store.url))
    version = await given.servers.store.inspection.read_version()
    return (*away, *well(f"MongoDB {version} lets us in"))


async def check_rights(given: Given) -> Answer:
    """The user may read and change the database and make its indexes (`readWrite` is enough). A database without logins
    is a warning, unless it is on this machine."""
    url = given.settings.store.url
    grants = await given.servers.store.inspection.read_grants(_NEEDED)
    if not grants.user:
        if all(is_local(host) for host, _ in store_addresses(url)):
            return well("MongoDB needs no login; it is on this machine")
        return warn("MongoDB needs no login: every program that reaches it can read and change everything")
    if not grants.missing:
        return well(f"{grants.user} may do all that Carillon does")
    role = f'[{{role: "readWrite", db: "{urlsplit(url).path[1:]}"}}]'
    grant = f'db.getSiblingDB("{grants.database}").grantRolesToUser("{grants.user}", {role})'
    return fault(f"{grants.user} may not {', '.join(grants.missing)}", _mongosh(url, grant, user="<admin>"))


async def check_replica_set(given: Given) -> Answer:
    """The server is a `mongos` or a member of a replica set, even of one member, because Carillon needs transactions.
    A majority of the members takes writes. The doctor writes to no document."""
    inspection = given.servers.store.inspection
    membership = await inspection.read_membership()
    if not membership.replica_set and not membership.is_router:
        said = "the server is no member of a replica set: it has no transactions. Start it with --replSet, then"
        return fault(said, _mongosh(given.settings.store.url, "rs.initiate()"))
    await inspection.write_nothing()
    return well(f"{membership.replica_set or 'a mongos'}: it has transactions, and a majority takes writes")


async def check_fencing(given: Given) -> Answer:
    """The server runs `killSessions` for our user: workers need it to take over the work of a killed worker. It reaches
    sessions of the same user alone, so all processes log in as one user. An update that leaves a document as it is does
    not count as a change (`modifiedCount`): by that a worker notices that another has replaced it. The doctor
    tries a random session and the stamp of the database."""
    inspection = given.servers.store.inspection
    try:
        await inspection.end_no_session()
    except (Unavailable, Unserved) as error:
        return fault(
            f"killSessions does not work ({error}). Workers need it to take up batches of killed workers. Atlas has it "
            "from M10 on"
        )
    if await inspection.count_equal_updates():
        return fault(
            "an update that leaves a document as it is counts as a change: a replaced worker would overwrite what its "
            "successor has stored. Use MongoDB, which does not count it"
        )
    return well("it ends sessions of killed processes, and counts updates as MongoDB does")


async def check_clock(given: Given) -> Answer:
    """The clock of this machine and the database's differ by less than a second. Schedules go by the database's; logs
    and certificates go by ours."""
    skew = (await given.servers.store.inspection.read_membership()).skew
    if abs(skew) < MOST_SKEW:
        return well("its clock and ours differ by less than a second")
    side = "behind" if skew > timedelta() else "ahead of"
    said = f"our clock is {abs(skew.total_seconds()):.1f} s {side} the database's"
    return warn(said, command("timedatectl", "set-ntp", "true"))


async def check_init(given: Given) -> Answer:
    """`carillon init` of this release has been run on the database: its stamp and every index are there, and no later
    release has shut this one out (`docs/upgrading.md`)."""
    store = given.servers.store
    stamp = judge_stamp(await store.schema.read())
    indexes = judge_indexes(await store.inspection.compare_indexes(), given.settings.store.url)
    return (*stamp, *indexes)


def judge_stamp(stamp: Stamp | None) -> Answer:
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


def judge_indexes(found: IndexComparison, url: str) -> Answer:
    opinions: list[Finding] = []
    for index in found.hindering:
        drop = _mongosh(url, f'db.getCollection("{index.collection}").dropIndex("{index.name}")')
        opinions += fault(f"another index prevents making one that Carillon needs ({index})", f"{drop} && {INIT}")
    if found.missing and not found.hindering:
        opinions += fault(f"missing indexes: {name_some(list(map(str, found.missing)))}", INIT)
    elif found.collections and not found.hindering:
        opinions += fault(f"missing collections: {name_some(found.collections)}", INIT)
    return opinions or well("all indexes are there")


def _mongosh(url: str, script: str, *, user: str = "") -> str:
    """A script for MongoDB's shell, which asks for the user's password."""
    user = user or unquote(urlsplit(url).username or "")
    login = ("--username", user) if user else ()
    return command("mongosh", without_login(url), *login, "--eval", script)


MONGODB = Subject(
    "MongoDB",
    (
        Question(LOGIN, check_login),
        Question("rights", check_rights),
        Question("replica set", check_replica_set),
        Question("fencing", check_fencing),
        Question("clock", check_clock),
        Question("init", check_init),
    ),
    lambda settings: without_login(settings.store.url).partition("://")[2],
)
