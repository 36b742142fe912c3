"""The questions about messages: whether the accounts that send them can be opened, and whether their rates are safe."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from math import ceil

from services.commands.doctor.examination import Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, name_some, warn, well
from services.commands.doctor.mongodb import MONGODB
from services.commands.doctor.shell import command, export
from shared.domain.console.processes import ProcessState, RunningProcess
from shared.domain.errors import Conflict
from shared.domain.messages.credentials import Credential
from shared.flow.messages.account_clock import AccountClock
from shared.runtime.settings import Settings
from shared.secrets import KEYS_SETTING, KeyRing
from shared.store import Store

_MOST_CREDENTIALS = 1_000
# Where two routers answer by turns, one in half a million examinations sees one of them alone.
_LOOKS = 20
_PAUSE_SECONDS = 0.05
_US_OF_MS = 1_000


class MessageAccounts(Examination):
    """Credentials, and the clock that their rates go by."""

    of = "Messages"

    def __init__(self, settings: Settings, store: Store, keys: KeyRing) -> None:
        self._settings = settings
        self._store = store
        self._keys = keys

    async def check_secrets(self) -> Opinions:
        """Every secret can be opened."""
        sealed = await self._store.credentials.find_sealed_otherwise("", limit=_MOST_CREDENTIALS)
        return judge_secrets(sealed, self._keys)

    async def check_logins(self) -> Opinions:
        """No provider has refused one."""
        still = await self._store.credentials.find_still(limit=_MOST_CREDENTIALS)
        return judge_logins(still)

    async def check_guard(self) -> Opinions:
        """All processes have the same guard."""
        now = await self._store.now()
        return judge_guards(await self._store.processes.list(), now)

    async def check_time(self) -> Opinions:
        """The database's time is known well enough from here."""
        if not await self._store.credentials.has_some():
            return well("not needed: there is no credential")
        clock, names = AccountClock(self._store), set[str]()
        for _ in range(_LOOKS):
            await clock.look()
            names.add(clock.read().clock)
            await asyncio.sleep(_PAUSE_SECONDS)
        return judge_time(clock.read().bound_us, allowed_ms=self._settings.providers.clock_ms, clocks=len(names))

    questions = (
        Question(
            "secrets",
            "One of `providers.secret_keys` opens every secret of a credential. One that was sealed under another key "
            "than the first is a warning, until `carillon credentials reencrypt` has been run.",
            check_secrets,
            needs=(MONGODB,),
        ),
        Question("logins", "No provider has refused the login of a credential.", check_logins, needs=(MONGODB,)),
        Question(
            "guard",
            "`providers.late_ms`, `providers.clock_ms` and `providers.network_ms` are alike in all processes. If not, "
            "an account may get more calls a second than its rate.",
            check_guard,
            needs=(MONGODB,),
        ),
        Question(
            "time",
            "From here the database's time is known to within `providers.clock_ms`, as workers need it to send "
            "messages, and one clock tells it. If not, how far away is MongoDB, or does `store.url` lead to several "
            "mongos (`docs/operating-messages.md`)?",
            check_time,
            needs=(MONGODB,),
        ),
    )


def judge_secrets(sealed: Sequence[Credential], keys: KeyRing) -> Opinions:
    """Which of these cannot be opened, and which only by a key that is to go."""
    if sealed and not keys.can_seal:
        said = f"{KEYS_SETTING} has no key, and {len(sealed)} credentials have secrets: nothing can be sent by them"
        return fault(said, export(KEYS_SETTING, "<the key that they were sealed under>"))
    lost = [credential for credential in sealed if not _opens(credential, keys)]
    opinions: list[Opinion] = []
    for credential in lost:
        said = f"no key opens the secret of {_name_of(credential)}: put its key back behind the first, or give it anew"
        opinions += fault(said, _secret_anew(credential))
    older = [one for one in sealed if one not in lost and one.sealed_by != keys.current]
    if older:
        said = f"{len(older)} secrets are sealed under a key that is not the first"
        opinions += warn(said, command("carillon", "credentials", "reencrypt"))
    return opinions or well(f"the keys open the secrets of all {len(sealed)} credentials that have one")


def judge_logins(still: Sequence[Credential]) -> Opinions:
    """Remedies for credentials that a provider refuses."""
    opinions: list[Opinion] = []
    for credential in still:
        if credential.is_rejected:
            opinions += warn(f"the provider refuses {_name_of(credential)}: {credential.why}", _secret_anew(credential))
    return opinions or well("no provider has refused one")


def judge_guards(known: Sequence[RunningProcess], now: datetime) -> Opinions:
    """Whether the parts of the guard are alike."""
    hosts: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for process in known:
        if process.state_at(now) is ProcessState.ALIVE:
            for name, milliseconds in process.guard.items():
                hosts[name][milliseconds].add(process.host)
    opinions: list[Opinion] = []
    for name, values in hosts.items():
        if len(values) > 1:
            said = "; ".join(f"{value} on {name_some(sorted(values[value]))}" for value in sorted(values))
            opinions += fault(f"providers.{name} differs: {said}", export(f"providers.{name}", str(max(values))))
    return opinions or well("alike in all processes that tell it")


def judge_time(bound_us: int, *, allowed_ms: int, clocks: int = 1) -> Opinions:
    """Whether messages are sent from a machine that may misread the database's time by so much, and is told it by so
    many clocks in turn."""
    if clocks > 1:
        return fault(
            f"{clocks} clocks tell the database's time in turn, as several mongos do: a worker here sends nothing. "
            "Have every process use the same one",
            export("store.url", "mongodb://<one mongos alone>/<database>"),
        )
    said = f"the database's time is known to within {bound_us / _US_OF_MS:.1f} ms"
    if bound_us <= allowed_ms * _US_OF_MS:
        return well(said)
    enough = ceil(2 * bound_us / _US_OF_MS)
    return warn(
        f"{said}, and providers.clock_ms is {allowed_ms}: a worker here sends nothing. Another value is for all "
        "processes at once",
        export("providers.clock_ms", str(enough)),
    )


def _opens(credential: Credential, keys: KeyRing) -> bool:
    try:
        keys.open(credential.secret, credential.id)
    except Conflict:
        return False
    return True


def _name_of(credential: Credential) -> str:
    return f"{credential.name} ({credential.id})"


def _secret_anew(credential: Credential) -> str:
    typed = command("carillon", "credentials", "secret", credential.id)
    return f"{typed} --app <its app> @<a file with the secret>"
