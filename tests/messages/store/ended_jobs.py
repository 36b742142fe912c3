"""Jobs of messages that have ended, as tests of their retention begin with them."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from shared.audience.rules.audiences import KeyRange
from shared.jobs.moves import fresh_incarnation
from shared.jobs.rules.batches import Batch, Receipt, Totals
from shared.jobs.rules.jobs import Job
from shared.messages.rules.ledger import RANKS, Message, MessageState, News, entry_id, hear
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.store import Store
from tests.jobs.made import a_job

NOW = datetime(2026, 12, 24, tzinfo=UTC)
EVER = datetime(2100, 1, 1, tzinfo=UTC)
OWNER = "w"
OPTIONS = {"channel": "mail", "recipient_column": "recipient"}


async def add_job(store: Store, sizes: list[int], *, unsent: int = 0, batch_size: int = 20, **fields: Any) -> Job:
    """A job that has ended: its batches have so many messages that were sent, and as many unsent ones."""
    job = a_job(
        credential_id="c",
        service="message",
        incarnation=fresh_incarnation(),
        options=OPTIONS | {"batch_size": batch_size},
        **fields,
    )
    await store.jobs.add(job)
    batches = [
        Batch(job_id=job.key, ordinal=ordinal, range=KeyRange(ordinal, ordinal + 1), size=size + unsent, owner=OWNER)
        for ordinal, size in enumerate(sizes)
    ]
    assert await store.batches.add_page(batches)
    for batch, size in zip(batches, sizes, strict=True):
        entries = [sent(job, batch.ordinal, row) for row in range(size)]
        changes = [EntryChange(None, entry) for entry in entries]
        for first in range(0, size, 200):
            done = await store.messages.write(batch.id, OWNER, changes[first : first + 200])
            assert done is WriteResult.DONE
    await store.batches.add_end(job.key, len(sizes))
    await store.jobs.end_plan(job.key, end=len(sizes))
    await end(store, job)
    found = await store.jobs.view(job.key)
    assert found is not None
    return found


async def end(store: Store, job: Job) -> None:
    """Close the job, as whoever finishes it does."""
    await store.kept_ledgers.begin_keeping(job.key)
    found = await store.jobs.view(job.key)
    assert found is not None
    closed = await store.jobs.close(job.key, totals=Totals(), summed=Receipt(), completed_at=1, round=found.round)
    assert closed is not None


def sent(job: Job, ordinal: int, row: int) -> Message:
    """An entry of the job."""
    return Message(
        id=entry_id(job.incarnation, ordinal, row),
        app_id=job.app_id,
        credential_id="c",
        to=f"ana{ordinal}.{row}@example.com",
        state=MessageState.SENT,
        detail="250 for ana",
        attempt=1,
        v=1,
        answered_at=NOW,
    )


async def tell(store: Store, message_id: str, state: MessageState, reason: str) -> bool:
    """Fold what a provider tells; `False` where it changes nothing, because the message has gone for instance."""
    news = News(state=state, at=NOW, attempt=1, reason=reason if RANKS[state] > RANKS[MessageState.READ] else "")
    while (entry := await store.messages.get(message_id)) is not None:
        after = hear(entry, news)
        if after is None:
            return False
        if await store.messages.fold([EntryChange(entry, after)]) is WriteResult.DONE:
            return True
    return False


async def count_rows(store: Store, job: Job) -> Counter[str]:
    """The job's entries by their states."""
    rows = await store.message_lists.page(job.incarnation, limit=100_000)
    return Counter(row.state.value for row in rows)


async def left(store: Store, job: Job) -> dict[str, int]:
    """How much is stored of the job."""
    prefix = {"$regex": f"^{job.incarnation}"}
    of_job: dict[str, dict[str, Any]] = {
        "messages": {"_id": prefix},
        "tallies": {"_id": prefix},
        "batches": {"job_id": job.key},
    }
    return {name: await store._database[name].count_documents(query) for name, query in of_job.items()}
