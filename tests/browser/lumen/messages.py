"""Accounts by which Lumen sends messages: one that its provider has slowed, and jobs that wait for them."""

from datetime import datetime, timedelta
from typing import Any

from shared.domain.audience.ranges import KeyRange
from shared.domain.audience.sources import PushTable
from shared.domain.instants import ms, ns
from shared.domain.jobs.batches import Batch, BatchStatus, Receipt
from shared.domain.jobs.jobs import Job, Plan
from shared.domain.messages.channels import Channel
from shared.domain.messages.credentials import Credential
from shared.domain.messages.jobs import MESSAGE_SERVICE, MessageOptions, options_as_fields
from shared.domain.messages.pacing import Limit, Pace
from shared.domain.messages.places import AccountPlace
from shared.store import Store
from tests.browser.lumen.ids import next_id

_BATCH = 1_000
_ACCOUNTS: tuple[tuple[str, str, float, float], ...] = (
    ("fcm-android", "fcm", 2_000.0, 1.0),
    ("mail-marketing", "ses", 400.0, 0.25),
    ("mail-receipts", "ses", 120.0, 1.0),
    ("sms-codes", "twilio", 30.0, 1.0),
)
"""The name of each, its kind, its rate, and the share of it that it may use."""


async def add_accounts(store: Store, app_id: str, now: datetime) -> None:
    """Put them in, with a job each for two of them."""
    made = {}
    for name, kind, rate, share in _ACCOUNTS:
        made[name] = credential = _credential(app_id, name, kind, rate, now)
        assert await store.credentials.add(credential)
        now_us = ms(now) * 1_000
        pace = Pace(seq=1, last_us=now_us + 60_000_000, share=share, slowed_us=now_us + 30_000_000, strikes=2)
        place = AccountPlace(holder=name, rank=(0.0, 0, ""), until_us=now_us + 60_000_000, limit=Limit.RATE)
        assert await store.credentials.change_traffic(credential.id, 0, pace, (place,))
    await _add_job(store, app_id, "spring-newsletter", made["mail-marketing"], 184, (now - timedelta(minutes=13), now))
    await _add_job(store, app_id, "receipt", made["mail-receipts"], 60, (now - timedelta(minutes=3), now))


def _credential(app_id: str, name: str, kind: str, rate: float, now: datetime) -> Credential:
    return Credential(
        id=next_id(), app_id=app_id, name=name, kind=kind, fields={}, rate=rate, max_in_flight=max(20, int(rate / 2)),
        test_recipient="qa@lumen.example", created_by="bea@lumen.example", created_at=now, updated_at=now,
    )  # fmt: skip


async def _add_job(
    store: Store, app_id: str, template: str, by: Credential, batches: int, span: tuple[datetime, datetime]
) -> None:
    """A job of so many batches, of which a third has left in this span."""
    at, now = span
    options = options_as_fields(MessageOptions(channel=Channel.MAIL, recipient_column="mail"))
    plan = Plan(source=PushTable(highest=batches * _BATCH), end=batches)
    made: dict[str, Any] = {"created_by": by.created_by, "group_id": next_id(), "created_at": ns(at)}
    job = Job(
        id=next_id(), incarnation=template, app_id=app_id, app_name="Lumen", service=MESSAGE_SERVICE,
        template_names=(template,), credential_id=by.id, plan=plan, options=options, **made,
    )  # fmt: skip
    await store.jobs.add(job)
    sent = batches // 3
    done = [
        _batch(
            job,
            n,
            status=BatchStatus.SENT,
            receipt=Receipt(sent=_BATCH),
            taken_at=when - (now - at) / sent,
            changed_at=when,
        )
        for n, when in enumerate(at + (now - at) * (n + 1) / sent for n in range(sent))
    ]
    await store.batches.add_page([*done, *(_batch(job, n) for n in range(sent, batches))])
    await store.batches.add_end(job.key, batches)
    tally = {"delivered": _BATCH - 20, "sent": 14, "failed": 6}
    await store._database["batches"].update_many(
        {"_id": {"$in": [each.id for each in done]}}, {"$set": {"tally": tally}}
    )


def _batch(job: Job, ordinal: int, **fields: Any) -> Batch:
    span = KeyRange(ordinal * _BATCH, (ordinal + 1) * _BATCH)
    return Batch(job_id=job.key, ordinal=ordinal, range=span, size=_BATCH, **fields)
