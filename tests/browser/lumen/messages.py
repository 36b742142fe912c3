"""Accounts by which Lumen sends messages: one that its provider has slowed, and jobs that wait for them."""

import random
from datetime import datetime, timedelta
from typing import Any

from shared.audience.rules.audiences import KeyRange, PushTable
from shared.core.instants import ms, ns
from shared.jobs.rules.batches import Batch, BatchStatus, Receipt
from shared.jobs.rules.jobs import Job, Plan
from shared.messages.rules.answers import Channel
from shared.messages.rules.credentials import Credential
from shared.messages.rules.jobs import MESSAGE_SERVICE, MessageOptions, options_as_fields
from shared.messages.rules.ledger import EarlierAttempt, Message, MessageState, entry_id
from shared.messages.rules.pacing import Limit, Pace
from shared.messages.rules.places import AccountPlace
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.store import Store
from tests.browser.lumen.ids import next_id
from tests.services.api.client import Client

_BATCH = 1_000
_ACCOUNTS: tuple[tuple[str, str, float, float], ...] = (
    ("fcm-android", "fcm", 2_000.0, 1.0),
    ("mail-marketing", "ses", 400.0, 0.25),
    ("mail-receipts", "ses", 120.0, 1.0),
    ("sms-codes", "twilio", 30.0, 1.0),
)
"""The name of each, its kind, its rate, and the share of it that it may use."""
_FIELDS = {"ses": {"host": "email-smtp.eu-west-1.amazonaws.com", "user": "AKIAEXAMPLE", "from": "hello@lumen.example"}}
ANA = "ana.silva@example.com"
_NAMES = (
    "bruno.costa", "chen.wei", "dora.novak", "emil.berg", "fatima.haddad", "george.okafor", "hana.sato", "ivan.petrov",
    "julia.martins", "karl.weber", "lucia.rossi", "mateo.garcia", "nadia.amrani", "oscar.lind", "priya.nair",
)  # fmt: skip
_STATES: tuple[tuple[MessageState, str, str], ...] = (
    (MessageState.DELIVERED, "", ""),
    (MessageState.READ, "", ""),
    (MessageState.DELIVERED, "", ""),
    (MessageState.SENT, "", ""),
    (MessageState.FAILED, "hard-bounce", "550 5.1.1 no such user here"),
    (MessageState.INVALID, "unsubscribed", ""),
)


async def add_accounts(store: Store, app_id: str, now: datetime) -> tuple[str, str, str]:
    """Put them in, with a job each for two of them: the ids of an account, of its job, and of a message of that."""
    made = {}
    for name, kind, rate, share in _ACCOUNTS:
        made[name] = credential = _credential(app_id, name, kind, rate, now)
        assert await store.credentials.add(credential)
        now_us = ms(now) * 1_000
        pace = Pace(seq=1, last_us=now_us + 60_000_000, share=share, slowed_us=now_us + 30_000_000, strikes=2)
        place = AccountPlace(holder=name, rank=(0.0, 0, ""), until_us=now_us + 60_000_000, limit=Limit.RATE)
        assert await store.credentials.change_traffic(credential.id, 0, pace, (place,))
    marketing, span = made["mail-marketing"], (now - timedelta(minutes=13), now)
    job_id = await _add_job(store, app_id, "spring-newsletter", marketing, 184, span)
    await _add_job(store, app_id, "receipt", made["mail-receipts"], 60, (now - timedelta(minutes=3), now))
    return marketing.id, job_id, entry_id("spring-newsletter", 0, 5)


async def add_suppressions(client: Client, app_id: str) -> None:
    """One person has unsubscribed from a list."""
    body = {"channel": "mail", "address": ANA, "list": "weekly-offers", "cause": "unsubscribe"}
    made = await client.post(f"/apps/{app_id}/suppressions", body)
    assert made.status in {200, 201}, made.body


def _credential(app_id: str, name: str, kind: str, rate: float, now: datetime) -> Credential:
    return Credential(
        id=next_id(), app_id=app_id, name=name, kind=kind, fields=_FIELDS.get(kind, {}), rate=rate,
        max_in_flight=max(20, int(rate / 2)),
        test_recipient="qa@lumen.example", created_by="bea@lumen.example", created_at=now, updated_at=now,
    )  # fmt: skip


async def _add_job(
    store: Store, app_id: str, template: str, by: Credential, batches: int, span: tuple[datetime, datetime]
) -> str:
    """A job of so many batches, of which a third has left in this span: its id."""
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
    await _add_messages(store, job, by, at)
    tally = {"delivered": _BATCH - 20, "sent": 14, "failed": 6, "reasons": {"hard-bounce": 4, "gave-up": 2}}
    stored = store._database["batches"]
    await stored.update_many({"_id": {"$in": [each.id for each in done]}}, {"$set": {"tally": tally}})
    # Those of the first batch that are in the ledger count there.
    await stored.update_one({"_id": done[0].id}, {"$inc": {"tally.delivered": -len(_NAMES)}})
    return job.id


async def _add_messages(store: Store, job: Job, by: Credential, at: datetime) -> None:
    """The first messages of its first batch; one of them was sent at the second attempt."""
    chance = random.Random(job.incarnation)
    put_off = EarlierAttempt(attempt=1, state=MessageState.FAILED, reason="soft-bounce", detail="421 4.7.0 try later")
    messages = [
        Message(
            id=entry_id(job.incarnation, 0, row), app_id=job.app_id, credential_id=by.id, state=state, reason=reason,
            to=ANA if row == 5 else f"{name}@example.com", detail=detail, attempt=2 if row == 5 else 1, v=1,
            answered_at=at + timedelta(milliseconds=chance.randint(100, 2_000)), earlier=(put_off,) if row == 5 else (),
            delivered_at=at + timedelta(seconds=5) if state is MessageState.DELIVERED else None,
            ref=f"0102018f-{row:04x}-4c1e-{job.incarnation}",
        )
        for row, name in enumerate(_NAMES)
        for state, reason, detail in [_STATES[0 if row == 5 else row % len(_STATES)]]
    ]  # fmt: skip
    assert await store.messages.fold([EntryChange(None, message) for message in messages]) is WriteResult.DONE


def _batch(job: Job, ordinal: int, **fields: Any) -> Batch:
    span = KeyRange(ordinal * _BATCH, (ordinal + 1) * _BATCH)
    return Batch(job_id=job.key, ordinal=ordinal, range=span, size=_BATCH, **fields)
