"""The questions about the bus: whether events that were published reach their receivers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from services.commands.doctor.examination import Examination, Question
from services.commands.doctor.findings import Opinion, Opinions, fault, warn, well
from services.commands.doctor.mongodb import MONGODB
from services.commands.doctor.shell import command, export
from shared.domain.bus.cursors import Cursor
from shared.domain.bus.subscriptions import EventSubscription, subscription_of
from shared.domain.errors import Conflict
from shared.flow.bus.subscription_secrets import open_secrets
from shared.runtime.bus_settings import BusSettings
from shared.secrets import KEYS_SETTING, KeyRing
from shared.store import Store
from shared.store.bus.inspection import MOST, TroubledQueue, Waiting

SCHEDULER = command("carillon", "scheduler")
LATE = timedelta(minutes=1)
FAILS_LONG = timedelta(hours=1)
OFTEN = 3
_TOLD = 10  # one by one: the others are counted

Subscriptions = Mapping[str, EventSubscription]


class EventBus(Examination):
    """Queues, and those who are to be called."""

    of = "Bus"

    def __init__(self, settings: BusSettings, store: Store, keys: KeyRing) -> None:
        self._settings = settings
        self._store = store
        self._inspection = store.bus_inspection
        self._keys = keys

    async def check_waking(self) -> Opinions:
        """Queues are told what they were brought."""
        return judge_waking(await self._inspection.find_unwoken(await self._store.now() - LATE))

    async def check_wake_ups(self) -> Opinions:
        """Queues that are due are handed to workers."""
        return judge_wake_ups(await self._inspection.find_overdue(await self._store.now() - LATE))

    async def check_workers(self) -> Opinions:
        """Workers come back from what they do."""
        troubled = await self._inspection.find_troubled(OFTEN)
        known = await self._store.bus_subscriptions.with_ids([queue.subscription_id for queue in troubled])
        return judge_workers(troubled, known)

    async def check_suspended(self) -> Opinions:
        """Nobody is suspended."""
        return judge_suspended(await self._inspection.find_suspended())

    async def check_receivers(self) -> Opinions:
        """Receivers take what they are sent."""
        failing = await self._inspection.find_failing(await self._store.now() - FAILS_LONG)
        known = await self._store.bus_subscriptions.with_ids([subscription_of(cursor.id) for cursor in failing])
        return judge_receivers(failing, known, timedelta(days=self._settings.suspend_after_days))

    async def check_secrets(self) -> Opinions:
        """Deliveries can be signed."""
        return judge_secrets(await self._inspection.find_signed(), self._keys, await self._store.now())

    questions = (
        Question(
            "waking",
            "Each queue with new events was woken within a minute. If not, no scheduler runs, or RabbitMQ takes no "
            "messages.",
            check_waking,
            needs=(MONGODB,),
        ),
        Question(
            "wake-ups",
            "Due wake-ups were handed to workers within a minute. If not, no scheduler runs.",
            check_wake_ups,
            needs=(MONGODB,),
        ),
        Question(
            "workers",
            "No subscription has made workers die or fail three times in a row.",
            check_workers,
            needs=(MONGODB,),
        ),
        Question(
            "suspended",
            "No subscription is suspended: a suspended one collects nothing.",
            check_suspended,
            needs=(MONGODB,),
        ),
        Question(
            "receivers",
            "No receiver has failed for an hour without a success. After `bus.suspend_after_days` its subscription is "
            "suspended.",
            check_receivers,
            needs=(MONGODB,),
        ),
        Question(
            "secrets",
            "One of `providers.secret_keys` opens every secret that deliveries are signed with. (Of the first 1,000 "
            "subscriptions.)",
            check_secrets,
            needs=(MONGODB,),
        ),
    )


def judge_waking(waiting: Waiting | None) -> Opinions:
    """Whether somebody wakes what flushes have brought."""
    if waiting is None:
        return well("queues are told what they were brought")
    said = f"no scheduler has woken the queues of {_count(waiting, 'flush', 'flushes')} since {_time(waiting.since)}"
    return fault(f"{said}: their events wait", SCHEDULER)


def judge_wake_ups(waiting: Waiting | None) -> Opinions:
    """Whether somebody hands over what is due."""
    if waiting is None:
        return well("what is due is handed to workers")
    said = f"no scheduler has handed over {_count(waiting, 'queue', 'queues')} since {_time(waiting.since)}"
    return fault(f"{said}: what is due there waits", SCHEDULER)


def judge_workers(troubled: Sequence[TroubledQueue], known: Subscriptions) -> Opinions:
    """With whom workers die or fail."""
    opinions: list[Opinion] = []
    for queue in troubled[:_TOLD]:
        if (subscription := known.get(queue.subscription_id)) is None:
            continue
        times = f"died {queue.deaths}" if queue.deaths >= OFTEN else f"failed {queue.faults}"
        said = f"workers have {times} times in a row with {_name(subscription)}: their logs tell why"
        opinions += warn(said, _verb("pause", subscription))
    return (*opinions, *_others(troubled)) or well("workers come back from every subscription")


def judge_suspended(suspended: Sequence[EventSubscription]) -> Opinions:
    """The suspended subscriptions, why they are, and how they go on."""
    opinions: list[Opinion] = []
    for subscription in suspended[:_TOLD]:
        since = _time(subscription.updated_at)
        said = f"{_name(subscription)} is suspended since {since}, and collects nothing: {subscription.reason}"
        opinions += warn(said, _verb("resume", subscription))
    return (*opinions, *_others(suspended)) or well("no subscription is suspended")


def judge_receivers(failing: Sequence[Cursor], known: Subscriptions, patience: timedelta) -> Opinions:
    """Whose receivers have failed for long. Those that are suspended, paused or gone are not called."""
    called = [
        (subscription, cursor.health)
        for cursor in failing
        if (subscription := known.get(subscription_of(cursor.id))) is not None
        and subscription.queue == cursor.id
        and subscription.is_called
    ]
    opinions: list[Opinion] = []
    for subscription, health in called[:_TOLD]:
        if (since := health.failing_since) is not None:
            suspended = _time(since + health.idle + patience)
            said = f"{_name(subscription)} fails since {_time(since)}, and is suspended at {suspended}"
            opinions += warn(f"{said}: is its receiver well?", _verb("show", subscription))
    return (*opinions, *_others(called)) or well("no receiver has failed for an hour")


def judge_secrets(signed: Sequence[EventSubscription], keys: KeyRing, now: datetime) -> Opinions:
    """Whose deliveries cannot be signed."""
    lost = [subscription for subscription in signed if not _opens(subscription, keys, now)]
    if not lost:
        return well(f"the keys open the secrets of {len(signed)} subscriptions")
    if not keys.can_seal:
        said = f"{KEYS_SETTING} has no key, and {len(lost)} subscriptions have secrets: nothing is delivered to them"
        return fault(said, export(KEYS_SETTING, "<the key that they were sealed under>"))
    opinions: list[Opinion] = []
    for subscription in lost[:_TOLD]:
        said = f"no key opens the secret of {_name(subscription)}: put its key back behind the first, or give it anew"
        opinions += fault(said, _verb("secret", subscription))
    return (*opinions, *_others(lost))


def _opens(subscription: EventSubscription, keys: KeyRing, now: datetime) -> bool:
    try:
        open_secrets(keys, subscription, now)
    except Conflict:
        return False
    return True


def _name(subscription: EventSubscription) -> str:
    return f"{subscription.key} of {subscription.namespace}"


def _verb(verb: str, subscription: EventSubscription) -> str:
    return command("carillon", "subscriptions", verb, subscription.key, "--namespace", subscription.namespace)


def _count(waiting: Waiting, one: str, many: str) -> str:
    more = " or more" if waiting.count >= MOST else ""
    return f"{waiting.count}{more} {one if waiting.count == 1 else many}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _others(found: Sequence[object]) -> Opinions:
    return warn(f"{len(found) - _TOLD} more like these") if len(found) > _TOLD else ()
