"""Publishing Carillon's own events: a fan-out takes them from the outbox, appends them to the log and removes them.

    stored ──> leased ──> published ──> removed

If a fan-out dies before it removes the events, another one publishes them again, with the same ids. The log has one
record for each namespace that gets the event: a namespace that subscribes to the topic and has a role over the event's
app or namespace when the event is published. Tokens may share a namespace: each of them needs the role, because each
may read what its subscriptions get. An event for which there is no namespace is removed.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

import msgspec
from msgspec import Raw

from shared.domain.accounts.callers import Caller, TokenScope, token_caller, user_caller, user_namespace
from shared.domain.bus.events import EventDraft
from shared.domain.bus.notices import api_url
from shared.domain.bus.topics import NOTIFIER
from shared.domain.instants import ms
from shared.domain.outbox import OwnEvent
from shared.flow.bus.publish import EventPublisher
from shared.flow.time import DatabaseTime
from shared.runtime.faults import fault
from shared.runtime.loops import Swept, repeat
from shared.store import Store

OUTBOX_SECONDS = 1.0

_AT_ONCE, _PUBLISHED_AT_ONCE = 200, 500
_LEASE: Final = timedelta(seconds=30)


class OutboxPublisher:
    """Publishes Carillon's own events. `base_url` is the API's URL, empty if it is not known."""

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
