"""Notices: Carillon's own events about subscriptions and the log, on the topic `carillon_notices`, and their mails.

The transaction that makes a notice's cause stores the notice, which is published afterwards. So it is told at least
once, with the same id each time, even after a crash. A notice goes only to subscriptions of the namespace that it
is about; a notice about the log goes to everybody.

Suspensions and coming suspensions are mailed too, to the subscription's `contact`, at least an hour apart.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from shared.bus.rules.deliveries import BusDeadLetter, Cursor
from shared.bus.rules.events import EVERYBODY, EventDraft
from shared.bus.rules.replays import Replay
from shared.bus.rules.subscriptions import PUBLISHED_KEY, EventSubscription, SubscriptionStatus, subscription_of
from shared.core.instants import format_instant, ms
from shared.jobs.rules.mails import Letter, Mailing, clip, recipients, write_table

LOSSES_WAIT = timedelta(minutes=1)
"""The waiting time of a notice of lost events, so that one notice reports them all."""
_NOBODYS_URL = "https://carillon.invalid"


class NoticeKind(StrEnum):
    SUSPENDED = "subscription.suspended"
    WARNED = "subscription.warned"  # half of the time to a suspension is over
    LOST = "events.lost"
    NEW_LOG = "log.replaced"


class NoticeWay(StrEnum):
    EVENT = "event"
    MAIL = "mail"


class BusNotice(Struct, frozen=True, kw_only=True):
    """A notice to tell from `due_at` on. `queue` and `key` are empty if it is about the log. `events` were lost, which
    came from `first_at` to `last_at`. `tries` counts the attempts to tell it. A mail goes to `contact`, names the host
    of the `receiver`, and stays for a while after it `is_told`."""

    id: str
    way: NoticeWay = NoticeWay.EVENT
    kind: NoticeKind
    audience: str
    queue: str = ""
    key: str = ""
    reason: str
    at: datetime
    events: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    contact: str = ""
    receiver: str = ""
    due_at: datetime
    tries: int = 0
    is_told: bool = False


class LogGap(Struct, frozen=True):
    """At least `events` unread records of a partition that will never be read. `is_new_log`: another log replaced the
    one that was read."""

    events: int
    is_new_log: bool = False


def notices_of_move(before: EventSubscription | None, after: EventSubscription) -> tuple[BusNotice, ...]:
    if before is None or before.state is after.state or after.state is not SubscriptionStatus.SUSPENDED:
        return ()
    return _in_both_ways(after, NoticeKind.SUSPENDED, f"{after.version}", after.reason, after.updated_at)


def notices_of_settlement(subscription: EventSubscription, before: Cursor, after: Cursor) -> tuple[BusNotice, ...]:
    """The notices about settled calls: the receiver has failed for half of the time to a suspension."""
    at, since = after.health.warned_at, after.health.failing_since
    if at is None or since is None or at == before.health.warned_at:
        return ()
    reason = f"its receiver has done nothing but fail since {since:%Y-%m-%d %H:%M} UTC"
    return _in_both_ways(subscription, NoticeKind.WARNED, f"{ms(at)}", reason, at)


def notice_of_loss(letter: BusDeadLetter, number: int) -> BusNotice:
    return BusNotice(
        id=f"{letter.queue}/{NoticeKind.LOST}/{number}",
        kind=NoticeKind.LOST,
        audience=letter.namespace,
        queue=letter.queue,
        key=letter.key,
        reason=letter.reason.value,
        at=letter.died_at,
        events=letter.count,
        first_at=letter.first_at,
        last_at=letter.last_at,
        due_at=letter.died_at + LOSSES_WAIT,
    )


def notice_of_missing(replay: Replay, records: int, at: datetime, reason: str = "log") -> BusNotice:
    """The notice about records, of all topics, that a replay has not brought. `reason`: `log`, which has them no more,
    or `fault`, after which it failed."""
    return BusNotice(
        id=f"{replay.id}/{NoticeKind.LOST}/{replay.step}",
        kind=NoticeKind.LOST,
        audience=replay.namespace,
        queue=replay.queue,
        key=replay.key,
        reason=reason,
        at=at,
        events=records,
        due_at=at + LOSSES_WAIT,
    )


def notice_of_surplus(first_id: str, events: int, at: datetime) -> BusNotice:
    """The notice about Carillon's own events that were lost because too many were unpublished. `first_id` is the first
    of them."""
    return BusNotice(
        id=f"outbox/{NoticeKind.LOST}/{first_id}",
        kind=NoticeKind.LOST,
        audience=EVERYBODY,
        reason="backlog",
        at=at,
        events=events,
        due_at=at + LOSSES_WAIT,
    )


def notices_of_gaps(flush_id: str, gaps: Collection[LogGap], at: datetime) -> tuple[BusNotice, ...]:
    """The notices about gaps of one flush: each kind once, for all partitions."""
    by_kind: Mapping[NoticeKind, list[int]] = {
        NoticeKind.LOST: [gap.events for gap in gaps if not gap.is_new_log],
        NoticeKind.NEW_LOG: [gap.events for gap in gaps if gap.is_new_log],
    }
    return tuple(
        BusNotice(
            id=f"log/{kind}/{flush_id}",
            kind=kind,
            audience=EVERYBODY,
            reason="log",
            at=at,
            events=sum(events),
            due_at=at,
        )
        for kind, events in by_kind.items()
        if events
    )


def event_of(notice: BusNotice, base_url: str) -> EventDraft:
    place = f"subscriptions/{notice.key}" if notice.key else "topics"
    return EventDraft(
        type=notice.kind.value,
        url=api_url(base_url, f"/bus/{place}"),
        t=Raw(str(ms(notice.at)).encode()),
        data=Raw(msgspec.json.encode(_facts(notice))),
        id=notice.id,
        audience=notice.audience,
    )


def api_url(base_url: str, path: str) -> str:
    return f"{(base_url or _NOBODYS_URL).rstrip('/')}{path}"


def _facts(notice: BusNotice) -> Mapping[str, Any]:
    facts = {
        "subscription": notice.key,
        "reason": notice.reason,
        "at": format_instant(notice.at),
        "events": notice.events,
        "first_at": notice.first_at and format_instant(notice.first_at),
        "last_at": notice.last_at and format_instant(notice.last_at),
    }
    return {name: fact for name, fact in facts.items() if fact}


def _in_both_ways(
    subscription: EventSubscription, kind: NoticeKind, number: str, reason: str, at: datetime
) -> tuple[BusNotice, ...]:
    """An event, and a mail, of which there is one at a time."""
    event = BusNotice(
        id=f"{subscription.queue}/{kind}/{number}",
        kind=kind,
        audience=subscription.namespace,
        queue=subscription.queue,
        key=subscription.key,
        reason=reason,
        at=at,
        due_at=at,
    )
    host, contact = urlsplit(subscription.callback).hostname or "", subscription.contact
    mail_id = f"{subscription.id}/{kind}/{NoticeWay.MAIL}"
    return event, replace(event, id=mail_id, way=NoticeWay.MAIL, contact=contact, receiver=host)


MAILS_APART = timedelta(hours=1)
"""The time after a mail about a subscription without another one of its kind."""
OLDEST_MAIL = timedelta(days=1)
"""A mail that could not be sent for this long is dropped."""
_SUBJECTS: Mapping[NoticeKind, str] = {
    NoticeKind.SUSPENDED: "Subscription suspended",
    NoticeKind.WARNED: "Subscription about to be suspended",
}


def write_notice(notice: BusNotice, mailing: Mailing) -> Letter | None:
    to = recipients(notice.contact, mailing)
    if not to or notice.kind not in _SUBJECTS:
        return None
    facts = {
        "Subscription": notice.key,
        "Namespace": notice.audience,
        "Receiver": notice.receiver,
        "Since": f"{notice.at:%Y-%m-%d %H:%M} UTC",
        "Why": notice.reason,
        "Written by": mailing.host,
    }
    is_suspended = notice.kind is NoticeKind.SUSPENDED
    receiver = f"the receiver of the subscription {notice.key}"
    suspended = f"Carillon calls {receiver} no more, and collects nothing for it."
    warned = f"T{receiver[1:]} does nothing but fail. If that lasts for as long again, the subscription is suspended."
    text = "\n\n".join([
        clip(suspended if is_suspended else warned),
        write_table(facts),
        *(_remedy(notice) if is_suspended else ["Nothing is lost yet. One delivery that it takes ends the matter."]),
    ])  # fmt: skip
    id_ = f"bus-{subscription_of(notice.queue)}.{notice.kind.value}.{ms(notice.at)}@{mailing.domain}"
    return Letter(id_, to, _SUBJECTS[notice.kind], text + "\n")


def _remedy(notice: BusNotice) -> list[str]:
    again = "\nOr have its service subscribe again, as it does when it starts." if notice.key == PUBLISHED_KEY else ""
    return [
        "To deliver the waiting events, repair the receiver and resume the subscription:",
        clip(f"  carillon subscriptions resume {notice.key}") + again,
    ]
