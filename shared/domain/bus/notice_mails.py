"""Mails about suspended subscriptions and coming suspensions, to the subscription's `contact`, at least an hour
apart."""

from collections.abc import Mapping
from datetime import timedelta

from shared.domain.bus.notices import BusNotice, NoticeKind
from shared.domain.bus.subscriptions import PUBLISHED_KEY, subscription_of
from shared.domain.instants import ms
from shared.domain.jobs.mails import Letter, Mailing, clip, recipients, write_table

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
        "What waited goes out once the receiver is well and somebody resumes the subscription:",
        clip(f"  carillon subscriptions resume {notice.key}") + again,
    ]
