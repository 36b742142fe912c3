"""Dead letters: retry a delivery that its receiver has not accepted, or discard it.

    retry ──> one transaction: remove the letter, open its delivery, note the queue to wake
          ──> wake the queue (the queues of a page together) ──> remove the note

If a process dies in between, the upkeep of the fan-outs finds the note. A letter about lost events has no delivery:
retrying it replays these events from the log.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from msgspec import Struct

from shared.domain.bus.dead_letters import MOST_OPEN, BusDeadLetter, BusLetterPlace, place_of_letter
from shared.domain.bus.wishes import has_to_be_made
from shared.domain.errors import Conflict, NotFound
from shared.flow.bus.replays import BusReplayFlow
from shared.flow.bus.waking import Waker
from shared.runtime.faults import fault
from shared.store import Store
from shared.store.bus.dead_letters import LetterRetry
from shared.store.bus.flushes import Unwoken
from shared.store.documents import Page

MOST_AT_ONCE = 500
"""One call retries this many letters, or up to a page more."""

_PAGE, _PAGES = 100, 50
_UNKNOWN = "it does not tell in which log its events lie"
_GONE = "it is not there any more, or its subscription is gone: then it can only be discarded"


class RetriedLetters(Struct, frozen=True):
    """The number of retried letters, and whether there are more."""

    retried: int
    more: bool


class BusDeadLetterFlow:
    """Lists, retries and discards dead letters. `now` returns the database's time."""

    def __init__(
        self, store: Store, waker: Waker, replays: BusReplayFlow, now: Callable[[], Awaitable[datetime]]
    ) -> None:
        self._store = store
        self._replays = replays
        self._waker = waker
        self._now = now

    async def page(
        self, namespace: str, *, key: str = "", before: BusLetterPlace | None = None, limit: int
    ) -> Page[BusDeadLetter]:
        """Dead letters of a namespace, or of one subscription, without their events, newest first."""
        return await self._store.bus_dead_letters.page(namespace, key=key, before=before, limit=limit)

    async def get(self, namespace: str, letter_id: str) -> BusDeadLetter:
        letter = await self._store.bus_dead_letters.get(namespace, letter_id)
        if letter is None:
            raise NotFound("there is no dead letter with this id", field="id", value=letter_id)
        return letter

    async def retry(self, namespace: str, letter_id: str) -> BusDeadLetter:
        """Open the delivery of a letter again, or replay the events that it reports as lost.

        Raises:
            Conflict: the subscription is gone, has too many open deliveries, or has an open replay.
            Gone: the letter reports a loss, and the log has lost these events.
        """
        letter = await self.get(namespace, letter_id)
        if refusal := await self._retry(letter):
            raise Conflict(refusal, field="id", value=letter_id)
        return letter

    async def retry_all(self, namespace: str, *, key: str = "") -> RetriedLetters:
        """Open the deliveries of letters again, newest first, as many as one call may. Letters that cannot be retried
        stay, and so do letters about losses, because a subscription has one replay at a time."""
        retried, place = 0, None
        for _ in range(_PAGES):
            page = await self._store.bus_dead_letters.page(namespace, key=key, before=place, limit=_PAGE, losses=False)
            retried += await self._retry_page(page)
            if not page.more or retried >= MOST_AT_ONCE:
                return RetriedLetters(retried, more=page.more)
            place = place_of_letter(page[-1])
        return RetriedLetters(retried, more=True)

    async def discard(self, namespace: str, letter_id: str) -> None:
        await self._store.bus_dead_letters.remove(await self.get(namespace, letter_id))

    async def _retry(self, letter: BusDeadLetter) -> str:
        """Retry a letter; returns the reason if that is impossible, else `""`."""
        if letter.queue not in await self._find_queues([letter]):
            return _GONE
        if letter.is_loss:
            return await self._replays.bring_back(letter) if letter.can_be_retried else _UNKNOWN
        retry = await self._store.bus_dead_letters.retry(letter, await self._now())
        if retry.is_full:
            return f"{MOST_OPEN:,} deliveries of its subscription are open: retry it when some of them are settled"
        if retry.unwoken is None:
            return _GONE
        await self._wake([retry.unwoken])
        return ""

    async def _retry_page(self, listed: Sequence[BusDeadLetter]) -> int:
        """Retry the letters of a page; returns how many. Their queues are looked up and woken together."""
        queues, now, opened = await self._find_queues(listed), await self._now(), list[Unwoken]()
        for one in listed:
            if one.queue not in queues:
                continue
            letter = await self._store.bus_dead_letters.get(one.namespace, one.id)
            retry = LetterRetry() if letter is None else await self._store.bus_dead_letters.retry(letter, now)
            if retry.is_full:
                queues.discard(one.queue)
            elif retry.unwoken is not None:
                opened.append(retry.unwoken)
        await self._wake(opened)
        return len(opened)

    async def _wake(self, opened: Sequence[Unwoken]) -> None:
        if opened:
            await fault("bus.after_retry")
            await self._waker.wake([wake for unwoken in opened for wake in unwoken.wakes])
            await self._store.bus_flushes.forget_unwoken([unwoken.id for unwoken in opened])

    async def _find_queues(self, letters: Sequence[BusDeadLetter]) -> set[str]:
        found = await self._store.bus_subscriptions.with_ids(list({letter.subscription for letter in letters}))
        return {subscription.queue for subscription in found.values() if not has_to_be_made(subscription)}
