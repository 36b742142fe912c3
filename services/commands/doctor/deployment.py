"""The questions about the deployment as a whole: settings that open doors, and faults that its parts know."""

import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from urllib.parse import unquote, urlsplit

from services.commands.doctor.examination import Address, Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, name_some, warn, well
from services.commands.doctor.mongodb import MONGODB
from services.commands.doctor.shell import command, export
from services.parts import find_processes
from shared.domain.console.processes import ProcessState, RunningProcess
from shared.domain.time_zones import RELEASE
from shared.runtime.settings import ApiSettings, Settings
from shared.store import Store

DEFAULT_LOGINS = {
    ("guest", "guest"),
    ("carillon", "carillon"),
    ("postgres", "postgres"),
    ("admin", "admin"),
    ("minioadmin", "minioadmin"),
}
MOST_USERS = 1_000
# A network as large as this is no proxy any more, but a neighbourhood.
_LARGE_NETWORK = {4: 16, 6: 48}


class Deployment(Examination):
    """All that is not of one server."""

    of = "Deployment"

    def __init__(self, settings: Settings, store: Store, find_faults: Callable[[], Awaitable[Sequence[str]]]) -> None:
        self._settings = settings
        self._store = store
        self._find_faults = find_faults

    async def check_proxies(self) -> Opinions:
        """Not everybody may say who they are."""
        return judge_proxies(self._settings.api)

    async def check_hosts(self) -> Opinions:
        """The API answers to its own names only."""
        api = self._settings.api
        if api.allowed_hosts:
            return well("the API answers to its own names only")
        if Address(api.host, api.port).is_loopback:
            return well("the API listens on loopback, and answers to its names only")
        return warn(
            "the API answers to any name in a request's Host, so that other names can be pointed at it",
            export("api.allowed_hosts", "<the names that callers use>"),
        )

    async def check_admin(self) -> Opinions:
        """Somebody may administer it."""
        named = self._settings.api.first_admin
        if named:
            return well(f"{named} is an admin by the setting")
        users = await self._store.users.page(limit=MOST_USERS)
        if any(user.is_admin for user in users) or users.more:
            return well("there is an admin")
        return warn("there is no admin", export("api.first_admin", "<your e-mail address>"))

    async def check_passwords(self) -> Opinions:
        """No server is used by a password that everybody knows."""
        return judge_logins(self._settings)

    async def check_processes(self) -> Opinions:
        """Every role is alive, in one version and with the same settings."""
        now = await self._store.now()
        return judge_processes(await self._store.processes.list(), now, list(find_processes()))

    async def tell_time_zones(self) -> Opinions:
        """Which rules the clocks follow."""
        return well(f"time zones follow release {RELEASE} of the IANA database, whatever this machine has")

    async def check_data(self) -> Opinions:
        """No part knows of something that an operator should put right."""
        faults = await self._find_faults()
        opinions: list[Opinion] = []
        for sentence in faults:
            opinions += warn(sentence)
        return opinions or well("nothing that an operator should put right")

    questions = (
        Question(
            "proxies",
            "No network in `api.trusted_proxies` is open to all, and a large one comes with `api.proxy_secret`: a peer "
            "in such a network may name any person.",
            check_proxies,
        ),
        Question(
            "hosts",
            "An API that others reach has `api.allowed_hosts`, and answers to no other name but that of "
            "`api.public_url`.",
            check_hosts,
        ),
        Question("first admin", "There is an admin, or `api.first_admin` names one.", check_admin, needs=(MONGODB,)),
        Question(
            "passwords",
            "No login at a server off this machine has a well-known password, such as guest:guest.",
            check_passwords,
        ),
        Question(
            "processes",
            "A process of each role is alive, none is silent, and all have one version and the same settings. "
            "Processes of 0.1.0 do not report themselves.",
            check_processes,
            needs=(MONGODB,),
        ),
        Question(
            "time zones",
            "Always. It tells the release of the package tzdata, whose time zones schedules and localized pushes "
            "follow.",
            tell_time_zones,
        ),
        Question(
            "data",
            "The parts of Carillon found nothing in the store that needs an operator.",
            check_data,
            needs=(MONGODB,),
        ),
    )


def judge_proxies(api: ApiSettings) -> Opinions:
    """The opinions on the proxies, which may say to be anybody."""
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


def judge_processes(known: Sequence[RunningProcess], now: datetime, roles: Sequence[str]) -> Opinions:
    """The reports of processes about themselves, and the processes that send none."""
    alive = [process for process in known if process.state_at(now) is ProcessState.ALIVE]
    working = {role for process in alive for role in process.roles}
    opinions: list[Opinion] = []
    for role in roles:
        if role not in working:
            opinions += warn(f"no {role} is alive", command("carillon", role))
    if silent := [process.id for process in known if process.state_at(now) is ProcessState.SILENT]:
        opinions += warn(f"frozen, cut off or dead: {name_some(silent)}")
    for what, values in (
        ("versions", {process.version for process in alive}),
        ("settings", {process.settings_digest for process in alive}),
    ):
        if len(values) > 1:
            hosts = sorted({process.host for process in alive})
            opinions += warn(f"{len(values)} different {what} on {name_some(hosts)}; GET /processes tells whose")
    return opinions or well(f"{len(alive)} are alive, with one version and the same settings")


def judge_logins(settings: Settings) -> Opinions:
    """Which servers are used by passwords that everybody knows."""
    opinions: list[Opinion] = []
    for setting, url in _urls(settings).items():
        parts = urlsplit(url)
        login = (unquote(parts.username or ""), unquote(parts.password or ""))
        host = Address(parts.hostname or "localhost", 0)
        if login in DEFAULT_LOGINS and not host.is_loopback:
            opinions += fault(
                f"{setting}: everybody knows the password of {login[0]} at {host.host}", _new_password(setting, *login)
            )
    return opinions or well("none that everybody knows, off this machine")


def _urls(settings: Settings) -> dict[str, str]:
    found = {
        "store.url": settings.store.url,
        "broker.url": settings.broker.url,
        "broker.management_url": settings.broker.management_url,
        "audience.url": settings.audience.url,
    }
    if settings.blobs.access_key and settings.blobs.endpoint_url:
        parts = urlsplit(settings.blobs.endpoint_url)
        login = f"{settings.blobs.access_key}:{settings.blobs.secret_key}"
        found["blobs.endpoint_url"] = parts._replace(netloc=f"{login}@{parts.netloc}").geturl()
    return found


def _new_password(setting: str, user: str, _: str) -> str:
    if setting.startswith("broker"):
        return command("rabbitmqctl", "change_password", user, "<new password>")
    return ""
