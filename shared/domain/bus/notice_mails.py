"""Mails about suspended subscriptions and coming suspensions, to the subscription's `contact`, at least an hour
apart."""

from collections.abc import Mapping
from datetime import timedelta

from shared.domain.bus.notices import BusNotice, NoticeKind
from shared.domain.bus.subscriptions import PUBLISHED_KEY, subscription_of
from shared.domain.instants import ms
from shared.domain.jobs.mails import Letter, Mailing, printable, recipients

MAILS_APART = timedelta(hours=1)
"""The time after a mail about a subscription without another one of its kind."""

OLDEST_MAIL = timedelta(days=1)
"""A mail that could not be sent for this long is dropped."""

_LABEL_WIDTH = 15
_SHOWN_CHARACTERS = 1_000

_SUBJECTS: Mapping[NoticeKind, str] = {
    NoticeKind.SUSPENDED: "Subscription suspended",
    NoticeKind.WARNED: "Subscription about to be suspended",
}


def write_notice(notice: BusNotice, mailing: Mailing) -> Letter | None:
    """The mail about a notice; `None` if it has no recipients."""
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
    text = "\n\n".join([
        _suspended_sentence(notice) if is_suspended else _warned_sentence(notice),
        "\n".join(f"{label + ':':<{_LABEL_WIDTH}} {_clip(fact)}" for label, fact in facts.items() if fact),
        *(_remedy(notice) if is_suspended else ["Nothing is lost yet. One delivery that it takes ends the matter."]),
    ])  # fmt: skip
    id_ = f"bus-{subscription_of(notice.queue)}.{notice.kind.value}.{ms(notice.at)}@{mailing.domain}"
    return Letter(id_, to, _SUBJECTS[notice.kind], text + "\n")


def _suspended_sentence(notice: BusNotice) -> str:
    return _clip(f"Carillon calls the receiver of the subscription {notice.key} no more, and collects nothing for it.")


def _warned_sentence(notice: BusNotice) -> str:
    return _clip(
        f"The receiver of the subscription {notice.key} does nothing but fail. "
        "If that lasts for as long again, the subscription is suspended."
    )


def _remedy(notice: BusNotice) -> list[str]:
    again = "\nOr have its service subscribe again, as it does when it starts." if notice.key == PUBLISHED_KEY else ""
    return [
        "What waited goes out once the receiver is well and somebody resumes the subscription:",
        _clip(f"  carillon subscriptions resume {notice.key}") + again,
    ]


def _clip(text: str) -> str:
    return printable(text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…")
