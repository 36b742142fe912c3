"""Publishing Carillon's own events and notices, and mails about subscriptions.

    stored with the change ──> leased ──> published ──> removed

If a process dies in between, the next one publishes the event or notice again under the same id. The log has one
record for each namespace that gets the event: a namespace that subscribes to the topic and has a role over the
event's app or namespace when the event is published. Tokens may share a namespace: each of them needs the role,
because each may read what its subscriptions get. An event for which there is no namespace is removed. A sent mail
stays for an hour as a mark, so that a user whose subscription is suspended repeatedly gets at most one mail an
hour. A mail is sent twice only if a process dies in between, with the same Message-ID.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

import msgspec
import structlog
from msgspec import Raw

from shared.accounts.rules.callers import Caller, TokenScope, token_caller, user_caller, user_namespace
from shared.bus.rules.events import NOTICES, NOTIFIER, EventDraft
from shared.bus.rules.notices import (
    MAILS_APART,
    OLDEST_MAIL,
    BusNotice,
    NoticeKind,
    NoticeWay,
    api_url,
    event_of,
    write_notice,
)
from shared.bus.topics import EventPublisher
from shared.core.documents import OwnEvent
from shared.core.errors import Invalid, Unauthorized, Unavailable
from shared.core.instants import ms
from shared.jobs.rules.mails import Mailing
from shared.providers.mail import Mail
from shared.runtime.faults import fault
from shared.runtime.loops import Swept, repeat
from shared.runtime.metrics import BUS_NOTICES, MAILS
from shared.store import Store
from shared.time import DatabaseTime

log = structlog.get_logger(__name__)
OUTBOX_SECONDS = 1.0
_AT_ONCE, _PUBLISHED_AT_ONCE = 200, 500
_LEASE: Final = timedelta(seconds=30)


class OutboxPublisher:
    def __init__(self, store: Store, publisher: EventPublisher, time: DatabaseTime, *, base_url: str) -> None:
        self._store = store
        self._publisher = publisher
        self._time = time
        self._base_url = base_url

    async def run_once(self) -> Swept:
        return Swept(claimed=await repeat(self._publish_some, while_full=1))

    async def _publish_some(self) -> int:
        now = await self._time.now()
        events = await self._store.outbox.take(now, now + _LEASE, _AT_ONCE)
        topics = sorted({event.topic for event in events})
        subscribers = await self._store.outbox.find_subscribers(topics) if topics else {}
        callers = await self._find_callers(frozenset(chain.from_iterable(subscribers.values())), now)
        for topic in topics:
            of_topic = [event for event in events if event.topic == topic]
            drafts = [
                self._draft(event, namespace)
                for event in of_topic
                for namespace in sorted(subscribers[topic])
                if _may_see(callers[namespace], event)
            ]
            for first in range(0, len(drafts), _PUBLISHED_AT_ONCE):
                await self._publisher.publish(topic, NOTIFIER, drafts[first : first + _PUBLISHED_AT_ONCE])
            await fault("outbox.after_publish")
            await self._store.outbox.remove(of_topic)
        return len(events)

    async def _find_callers(self, namespaces: Collection[str], now: datetime) -> Mapping[str, Sequence[Caller | None]]:
        """The users and tokens of each namespace; `None` for a token of the bus, which has no role over anything
        else."""
        found: dict[str, list[Caller | None]] = {namespace: [] for namespace in namespaces}
        if not namespaces:
            return found
        emails = [namespace.removeprefix(user_namespace("")) for namespace in namespaces]
        for user in (await self._store.users.with_emails(emails)).values():
            found[user_namespace(user.email)].append(user_caller(user))
        for token in await self._store.tokens.find_of_namespaces(namespaces):
            if not token.why_refused(token.digest, now):
                found[token.owns].append(token_caller(token) if token.scope is TokenScope.EVERYTHING else None)
        return found

    def _draft(self, event: OwnEvent, audience: str) -> EventDraft:
        return EventDraft(
            type=event.type,
            url=api_url(self._base_url, event.path),
            t=Raw(str(ms(event.stored_at)).encode()),
            data=Raw(msgspec.json.encode(event.data)),
            id=event.id,
            audience=audience,
        )


def _may_see(callers: Sequence[Caller | None], event: OwnEvent) -> bool:
    return bool(callers) and all(caller is not None and _has_role(caller, event) for caller in callers)


def _has_role(caller: Caller, event: OwnEvent) -> bool:
    role = caller.role_over_app(event.app_id) if event.app_id else caller.role_over_namespace(event.namespace)
    return role is not None


NOTICE_SECONDS = 3.0
_NOTICES_AT_ONCE = 500  # in one round
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
        while told < _NOTICES_AT_ONCE and (notice := await self._take()) is not None:
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
    return now + min(_FIRST_PAUSE * (1 << min(tries - 1, _DOUBLINGS)), _LONGEST_PAUSE)


MAIL_SECONDS = 5.0
_MAILS_AT_ONCE = 100  # in one round


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
        while sent < _MAILS_AT_ONCE and (notice := await self._take()) is not None:
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
