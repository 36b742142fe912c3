"""Mails about subscriptions, stored together with the notice and sent from the store.

A sent mail stays for an hour as a mark, so that a user whose subscription is suspended repeatedly gets at most one mail
an hour. A mail is sent twice only if a process dies in between, with the same Message-ID.
"""

from datetime import timedelta

import structlog

from shared.domain.bus.notice_mails import MAILS_APART, OLDEST_MAIL, write_notice
from shared.domain.bus.notices import BusNotice, NoticeWay
from shared.domain.errors import Invalid, Unauthorized, Unavailable
from shared.domain.jobs.mails import Mailing
from shared.flow.bus.notices import later_try
from shared.flow.time import DatabaseTime
from shared.providers.mail import Mail
from shared.runtime.faults import fault
from shared.runtime.loops import Swept
from shared.runtime.metrics import MAILS
from shared.store import Store

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 5.0

_AT_ONCE = 100  # in one round


class NoticeMails:
    """Sends mails about subscriptions. `lease` is how long a sender holds a mail."""

    def __init__(self, store: Store, mail: Mail, time: DatabaseTime, mailing: Mailing, *, lease: timedelta) -> None:
        self._store = store
        self._mail = mail
        self._time = time
        self._mailing = mailing
        self._lease = lease

    async def run_once(self) -> Swept:
        """Send the mails that are due. If the mail server is away, a mail is tried again for a day."""
        sent = 0
        while sent < _AT_ONCE and (notice := await self._take()) is not None:
            if notice.is_told:
                await self._store.bus_notices.remove(notice.id)
                continue
            MAILS.labels(await self._deliver(notice)).inc()
            await fault("mail.after_send")
            await self._store.bus_notices.note_told(notice, await self._time.now() + MAILS_APART)
            sent += 1
        return Swept(claimed=sent)

    async def _take(self) -> BusNotice | None:
        now = await self._time.now()
        return await self._store.bus_notices.take(NoticeWay.MAIL, now, now + self._lease)

    async def _deliver(self, notice: BusNotice) -> str:
        try:
            letter = write_notice(notice, self._mailing)
            if letter is None:
                return "unwanted"
            await self._mail.send(letter)
        except (Invalid, ValueError) as error:
            log.error("mail refused", notice=notice.id, reason=str(error))
            return "refused"
        except (Unauthorized, Unavailable) as error:
            now = await self._time.now()
            if notice.at < now - OLDEST_MAIL:
                log.error("mail given up", notice=notice.id, reason=str(error))
                return "given up"
            await self._store.bus_notices.put_off(notice, later_try(notice.tries, now))
            raise Unavailable(str(error)) from error
        return "sent"
