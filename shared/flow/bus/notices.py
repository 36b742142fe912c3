"""Publishing notices: a notice in the outbox is published and then removed.

    stored with the change ──> leased ──> published ──> removed

If a process dies in between, the next one publishes the notice again under the same id.
"""

from datetime import datetime, timedelta
from typing import Final

from shared.domain.bus.notices import BusNotice, NoticeKind, NoticeWay, event_of
from shared.domain.bus.topics import NOTICES, NOTIFIER
from shared.domain.errors import Unavailable
from shared.flow.bus.publish import EventPublisher
from shared.flow.time import DatabaseTime
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import BUS_NOTICES
from shared.store import Store

INTERVAL_SECONDS = 3.0

_AT_ONCE = 500  # in one round
_LEASE: Final = timedelta(seconds=30)
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)
_DOUBLINGS = 20


class NoticeTeller:
    """Publishes notices. `base_url` is the API's URL, empty if it is not known."""

    def __init__(self, store: Store, publisher: EventPublisher, time: DatabaseTime, *, base_url: str) -> None:
        self._store = store
        self._publisher = publisher
        self._time = time
        self._base_url = base_url
        for kind in NoticeKind:
            BUS_NOTICES.labels(kind.value)  # its first rise is seen only of what was there

    async def run_once(self) -> Swept:
        told = 0
        while told < _AT_ONCE and (notice := await self._take()) is not None:
            await self._tell(notice)
            told += 1
        return Swept(claimed=told)

    async def _take(self) -> BusNotice | None:
        now = await self._time.now()
        return await self._store.bus_notices.take(NoticeWay.EVENT, now, now + _LEASE)

    async def _tell(self, notice: BusNotice) -> None:
        try:
            await self._publisher.publish(NOTICES, NOTIFIER, [event_of(notice, self._base_url)])
        except Unavailable:
            await self._store.bus_notices.put_off(notice, later_try(notice.tries, await self._time.now()))
            raise
        await fault("notices.after_publish")
        BUS_NOTICES.labels(notice.kind.value).inc()
        await self._store.bus_notices.remove(notice.id)


def later_try(tries: int, now: datetime) -> datetime:
    """The time of the next try after `tries` failed ones."""
    return now + min(_FIRST_PAUSE * (1 << min(tries - 1, _DOUBLINGS)), _LONGEST_PAUSE)
