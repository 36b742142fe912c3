"""The questions to PostgreSQL, to files and mail, and about messages and the deployment as a whole."""

import asyncio
import ipaddress
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import ceil
from urllib.parse import unquote, urlsplit

from services.commands.doctor.questions import (
    LOGIN,
    Answer,
    Finding,
    Given,
    Question,
    Subject,
    address_of,
    command,
    export,
    fault,
    name_some,
    reach,
    show_address,
    warn,
    well,
    without_login,
)
from shared.audience.rules.audiences import table_name
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.subscriptions import open_secrets
from shared.core.errors import Conflict, NotFound
from shared.drivers.postgres.inspection import AudienceInspection, FoundTable
from shared.drivers.secrets import KEYS_SETTING, KeyRing
from shared.messages.clock import AccountClock
from shared.messages.rules.credentials import Credential
from shared.push.rules.records import SERVICES
from shared.runtime.readings import read_by_label
from shared.runtime.settings import ApiSettings, Settings
from shared.runtime.weaknesses import find_weaknesses

OLDEST_POSTGRESQL = 130000
MOST_APPS = 500
MOST_SECRETS = 1_000
LEAST_DAYS = 30
_POSTGRESQL_PORT = 5432
_WITHOUT_INDEXES = {"v": "view", "f": "foreign table"}
_MAIL_PORTS = {"smtp": 587, "smtps": 465, "sendgrid": 443}
# With two routers that answer by turns, one in half a million examinations sees one of them alone.
_LOOKS = 20
_PAUSE_SECONDS = 0.05
_US_OF_MS = 1_000
_DAY_SECONDS = 86_400
# A network as large as this is no proxy any more, but a neighbourhood.
_LARGE_NETWORK = {4: 16, 6: 48}


async def check_postgresql(given: Given) -> Answer:
    """PostgreSQL can be reached, accepts the user and the password of `audience.url`, has its database, and is of
    version 13 or later."""
    url = given.settings.audience.url
    if urlsplit(url).hostname:
        await reach(address_of(url, _POSTGRESQL_PORT))
    try:
        version, number = await AudienceInspection(given.servers.audience.connections).read_version()
    except NotFound:
        database = unquote(urlsplit(url).path[1:])
        server = urlsplit(without_login(url))._replace(path="/postgres").geturl()
        return fault(f"there is no database {database}", _psql(server, f"CREATE DATABASE {_identifier(database)}"))
    if number < OLDEST_POSTGRESQL:
        return fault(f"PostgreSQL {version} is older than 13")
    return well(f"PostgreSQL {version.partition(' ')[0]} lets us in")


async def check_tables(given: Given) -> Answer:
    """Each app has a push table for one service at least, which we may read and which has the columns that a push needs
    (`docs/push-table.md`). An index begins with `seq_id`: planning walks through the table by it. Another begins with
    `user_id`, and finds the users of a file. (Of the first 500 apps.)"""
    apps = [app.name for app in await given.servers.store.apps.page(limit=MOST_APPS)]
    names = {table_name(app, service): app for app in apps for service in SERVICES}
    found = await AudienceInspection(given.servers.audience.connections).find_tables(list(names))
    having = {names[table.name] for table in found}
    findings = [*judge_tables(found, given.settings.audience.url)]
    for app in apps:
        if app not in having:
            wanted = " or ".join(table_name(app, service) for service in SERVICES)
            findings += warn(f"the app {app} has no push table: {wanted}")
    return findings or well(f"{len(found)} push tables of {len(apps)} apps are as a push needs them")


async def check_files(given: Given) -> Answer:
    """The bucket or the folder of `blobs.url` can be read and written. At S3, the doctor begins an upload in parts and
    aborts it, so that there is no object at any time. In a folder, it writes a file without a name, which is gone when
    it is closed."""
    chosen, blobs = given.settings.blobs, given.servers.blobs
    if chosen.endpoint_url and urlsplit(chosen.url).scheme == "s3":
        await reach(address_of(chosen.endpoint_url, 80 if urlsplit(chosen.endpoint_url).scheme == "http" else 443))
    try:
        await blobs.verify()
    except NotFound as error:
        endpoint = ("--endpoint-url", chosen.endpoint_url) if chosen.endpoint_url else ()
        return fault(str(error), command("aws", *endpoint, "s3", "mb", f"s3://{blobs.bucket}"))
    return well("they can be read and written")


async def check_mail(given: Given) -> Answer:
    """The mail server can be reached, and accepts our login or key, over TLS if `mail.url` asks for it. No mail is
    sent: SMTP is left after the login, and SendGrid gets one for its sandbox."""
    await reach(_mail_address(given.settings))
    await given.servers.mail.verify()
    return well("the mail server lets us in")


async def check_keys(given: Given) -> Answer:
    """One of `providers.secret_keys` opens every secret of a credential and of a subscription of the bus. A credential
    that was sealed under another key than the first is a warning, until `carillon credentials reencrypt` has been run.
    (Of the first 1,000 of each.)"""
    store, keys = given.servers.store, given.servers.key_ring
    credentials = await store.credentials.find_sealed_otherwise("", limit=MOST_SECRETS)
    return judge_keys(
        credentials, await store.bus_subscriptions.page_signed(limit=MOST_SECRETS), keys, await store.now()
    )


async def check_time(given: Given) -> Answer:
    """From here the database's time is known to within `providers.clock_ms`, as workers need it to send messages, and
    one clock tells it. If not, how far away is MongoDB, or does `store.url` lead to several mongos
    (`docs/operating-messages.md`)?"""
    if not await given.servers.store.credentials.has_some():
        return well("not needed: there is no credential")
    clock, names = AccountClock(given.servers.store), set[str]()
    for _ in range(_LOOKS):
        await clock.look()
        names.add(clock.read().clock)
        await asyncio.sleep(_PAUSE_SECONDS)
    return judge_time(clock.read().bound_us, allowed_ms=given.settings.providers.clock_ms, clocks=len(names))


async def check_tls(given: Given) -> Answer:
    """Each server's connection is encrypted and verified, or stays on this machine. The certificates that servers have
    shown, and our own (`tls.certificate_file`), are good for 30 days at least. A certificate that is not trusted, or is
    of another name, is a fault of the server's `login`."""
    ends = read_by_label("carillon_certificate_expiry_timestamp_seconds", "of")
    return judge_tls(find_weaknesses(given.settings), {of: end - time.time() for of, end in ends.items()})


async def check_proxies(given: Given) -> Answer:
    """No network in `api.trusted_proxies` is open to all, and a large one comes with `api.proxy_secret`: a peer in such
    a network may name any person."""
    return judge_proxies(given.settings.api)


def judge_tables(tables: Sequence[FoundTable], url: str) -> Iterator[Finding]:
    user = _identifier(unquote(urlsplit(url).username or ""))
    for table in tables:
        name = _identifier(table.name)
        if not table.readable:
            yield from fault(f"we may not read {table.name}", _psql(url, f"GRANT SELECT ON {name} TO {user}"))
        if table.missing:
            added = ", ".join(
                f"ADD COLUMN {each} {'bigserial' if each == 'seq_id' else 'text'}" for each in table.missing
            )
            remedy = "" if table.kind in _WITHOUT_INDEXES else _psql(url, f"ALTER TABLE {name} {added}")
            yield from fault(f"{table.name} lacks {', '.join(table.missing)}", remedy)
        if table.key_type:
            change = "ALTER COLUMN seq_id TYPE bigint USING seq_id::bigint"
            remedy = "" if table.kind in _WITHOUT_INDEXES else _psql(url, f"ALTER TABLE {name} {change}")
            yield from fault(f"seq_id of {table.name} is no integer but {table.key_type}", remedy)
        if (kind := _WITHOUT_INDEXES.get(table.kind)) and table.unindexed:
            columns = " and ".join(table.unindexed)
            yield from well(f"{table.name} is a {kind}: index the columns of its table that are {columns}")
            continue
        create = "CREATE INDEX" if table.kind == "p" else "CREATE INDEX CONCURRENTLY"  # refused for a partitioned table
        for column in table.unindexed:
            said = f"{table.name} has no index that begins with {column}: it is read as a whole, again and again"
            yield from warn(said, _psql(url, f"{create} ON {name} ({column})"))


def judge_keys(
    credentials: Sequence[Credential], subscriptions: Sequence[EventSubscription], keys: KeyRing, now: datetime
) -> Answer:
    if not keys.can_seal and (credentials or subscriptions):
        said = f"{KEYS_SETTING} has no key, and {len(credentials) + len(subscriptions)} secrets are sealed"
        return fault(f"{said}: nothing is sent by them", export(KEYS_SETTING, "<the key that they were sealed under>"))
    lost: list[tuple[str, str]] = []
    older = 0
    for credential in credentials:
        try:
            keys.open(credential.secret, credential.id)
            older += credential.sealed_by != keys.current
        except Conflict:
            anew = command("carillon", "credentials", "secret", credential.id)
            lost.append((credential.name, f"{anew} --app <its app> @<a file with the secret>"))
    for subscription in subscriptions:
        try:
            open_secrets(keys, subscription, now)
        except Conflict:
            of = ("--namespace", subscription.namespace)
            anew = command("carillon", "subscriptions", "secret", subscription.key, *of)
            lost.append((f"{subscription.key} of {subscription.namespace}", anew))
    findings: list[Finding] = []
    if lost:
        names = name_some([name for name, _ in lost])
        findings += fault(
            f"no key opens the secret of {names}: put its key back behind the first, or give it anew", lost[0][1]
        )
    if older:
        said = f"{older} secrets of credentials are sealed under a key that is not the first"
        findings += warn(said, command("carillon", "credentials", "reencrypt"))
    return findings or well(f"the keys open all {len(credentials) + len(subscriptions)} secrets")


def judge_time(bound_us: int, *, allowed_ms: int, clocks: int = 1) -> Answer:
    if clocks > 1:
        return fault(
            f"{clocks} clocks tell the database's time in turn, as several mongos do: a worker here sends nothing. "
            "Have every process use the same one",
            export("store.url", "mongodb://<one mongos alone>/<database>"),
        )
    said = f"the database's time is known to within {bound_us / _US_OF_MS:.1f} ms"
    if bound_us <= allowed_ms * _US_OF_MS:
        return well(said)
    return warn(
        f"{said}, and providers.clock_ms is {allowed_ms}: a worker here sends nothing. Another value is for all "
        "processes at once",
        export("providers.clock_ms", str(ceil(2 * bound_us / _US_OF_MS))),
    )


def judge_tls(weaknesses: Sequence[tuple[str, str]], seconds_left: Mapping[str, float]) -> Answer:
    findings: list[Finding] = []
    for setting, sentence in weaknesses:
        findings += warn(f"{setting}: {sentence}")
    for of, seconds in seconds_left.items():
        if seconds < LEAST_DAYS * _DAY_SECONDS:
            findings += warn(f"the certificate of {of} ends in {seconds / _DAY_SECONDS:.0f} days")
    return findings or well("every connection is encrypted and verified, or stays on this machine")


def judge_proxies(api: ApiSettings) -> Answer:
    networks = [ipaddress.ip_network(network) for network in api.trusted_proxies]
    remedy = export("api.trusted_proxies", "<the addresses of your proxy>")
    if open_to_all := [str(network) for network in networks if network.prefixlen == 0]:
        return fault(f"{', '.join(open_to_all)}: every peer may name any person", remedy)
    large = [
        str(network)
        for network in networks
        if not network.is_loopback and network.prefixlen <= _LARGE_NETWORK[network.version]
    ]
    if large and not api.proxy_secret:
        said = f"{', '.join(large)}: every peer may name any person, without a secret"
        return warn(said, export("api.proxy_secret", "<16 random characters or more>"))
    return well("only the proxies that you name are believed")


def _psql(url: str, statement: str) -> str:
    """A statement for PostgreSQL, to be run by the owner of the tables."""
    return command("psql", without_login(url), "--command", statement)


def _identifier(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _mail_address(settings: Settings) -> tuple[str, int]:
    return address_of(settings.mail.url, _MAIL_PORTS[urlsplit(settings.mail.url).scheme])


POSTGRESQL = Subject(
    "PostgreSQL",
    (Question(LOGIN, check_postgresql), Question("tables", check_tables, needs=("MongoDB",))),
    lambda settings: without_login(settings.audience.url).partition("://")[2],
)
FILES = Subject("Files", (Question("access", check_files),), lambda settings: settings.blobs.url)
MAIL = Subject(
    "Mail",
    (Question(LOGIN, check_mail),),
    lambda settings: show_address(*_mail_address(settings)) if settings.mail.url else None,
)
MESSAGES = Subject(
    "Messages",
    (Question("keys", check_keys, needs=("MongoDB",)), Question("time", check_time, needs=("MongoDB",))),
)
DEPLOYMENT = Subject("Deployment", (Question("tls", check_tls, last=True), Question("proxies", check_proxies)))
