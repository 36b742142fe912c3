"""The ledger: entries and tallies change together or not at all, whoever else writes."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from msgspec.structs import replace

from shared.audience.rules.audiences import KeyRange
from shared.core.instants import ns
from shared.jobs.rules.batches import Batch, BatchStatus, Receipt, batch_id
from shared.messages.rules.answers import CallAccepted, CallRefused, CallUnanswered, Channel, NotNow, Reason
from shared.messages.rules.ledger import (
    Message,
    MessageState,
    News,
    answer,
    batch_prefix,
    entry_id,
    hear,
    prefix_of,
    write_ahead,
)
from shared.messages.rules.singles import SingleWish
from shared.messages.store_ledger import EntryChange, MessageLedger, WriteResult
from shared.store import Store
from tests.jobs.made import a_job

NOW = datetime(2026, 12, 24, tzinfo=UTC)
SOON = NOW + timedelta(seconds=2)
JOB, INCARNATION = "job.abc", "abc"


@pytest.fixture
async def ledger(store: Store) -> MessageLedger:
    found = MessageLedger(store._database)
    await found.setup()
    return found


async def add_batch(store: Store, ordinal: int = 0, *, owner: str = "w1") -> str:
    batch = Batch(
        job_id=JOB, ordinal=ordinal, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner=owner, turn=1
    )
    assert await store.batches.add_page([batch])
    return batch.id


def blank(row: int = 0, ordinal: int = 0, **fields: object) -> Message:
    texts = {"app_id": "app", "credential_id": "post", "to": f"ana{row}@example.com"}
    return Message(id=entry_id(INCARNATION, ordinal, row), **texts | fields)  # type: ignore[arg-type]


def ahead(message: Message) -> Message:
    return write_ahead(message, owner="w1", until=SOON)


def answered(message: Message, given: object) -> Message:
    changed = answer(message, message.attempt, given, at=NOW, attempts=3)  # type: ignore[arg-type]
    assert changed is not None
    return changed


async def put(ledger: MessageLedger, *messages: Message, batch: str = batch_id(JOB, 0)) -> list[Message]:
    written = [ahead(message) for message in messages]
    assert await ledger.write(batch, "w1", [EntryChange(None, entry) for entry in written]) is WriteResult.DONE
    return written


def test_ids_tell_the_batch() -> None:
    assert entry_id("abc", 12, 34) == "abc.00000012.00034"
    assert prefix_of("abc.00000012.00034") == batch_prefix("abc", 12) == "abc.00000012."
    assert prefix_of("0190-single") == ""


async def test_what_is_written_ahead_is_read_again_with_its_tally(store: Store, ledger: MessageLedger) -> None:
    await add_batch(store)
    written = await put(ledger, blank(0), blank(1))
    assert await ledger.read_batch(INCARNATION, 0) == {entry.id: entry for entry in written}
    assert await ledger.get(written[0].id) == written[0]
    assert (await store.message_sums.count(JOB)).tally == {"sending": 2}


async def test_answers_of_many_go_in_one_write(store: Store, ledger: MessageLedger) -> None:
    batch = await add_batch(store)
    entries = await put(ledger, *(blank(row) for row in range(100)))
    given = [
        CallAccepted("p"),
        CallRefused(Reason.REFUSED, "$to"),
        NotNow("busy"),
        CallUnanswered(),
        CallRefused(Reason.UNREGISTERED),
    ]
    after = [answered(entry, given[row % 5]) for row, entry in enumerate(entries)]
    changes = [EntryChange(before, entry) for before, entry in zip(entries, after, strict=True)]
    assert await ledger.write(batch, "w1", changes) is WriteResult.DONE
    assert await ledger.read_batch(INCARNATION, 0) == {entry.id: entry for entry in after}
    assert (await store.message_sums.count(JOB)).tally == {
        "sent": 20,
        "failed": 20,
        "unknown": 20,
        "invalid": 20,
        "reasons.refused": 20,
        "reasons.unregistered": 20,
    }
    told = await store.batches.get(JOB, 0)
    assert told is not None
    assert told.receipt == Receipt(sent=20, failed=40, skipped=20), "so far: the other 20 wait for another attempt"


async def test_texts_of_others_are_no_expressions(store: Store, ledger: MessageLedger) -> None:
    batch = await add_batch(store)
    [entry] = await put(ledger, blank(to="$app_id"))
    after = answered(entry, CallRefused(Reason.REFUSED, "$$ROOT {'$add': 1}"))
    assert await ledger.write(batch, "w1", [EntryChange(entry, after)]) is WriteResult.DONE
    assert await ledger.get(entry.id) == after


async def test_who_lost_the_batch_writes_nothing(store: Store, ledger: MessageLedger) -> None:
    batch = await add_batch(store, owner="w2")
    assert await ledger.write(batch, "w1", [EntryChange(None, ahead(blank()))]) is WriteResult.LOST
    assert await ledger.read_batch(INCARNATION, 0) == {}
    assert (await store.message_sums.count(JOB)).tally == {}


async def test_one_entry_that_has_changed_stops_the_whole_write(store: Store, ledger: MessageLedger) -> None:
    batch = await add_batch(store)
    first, second = await put(ledger, blank(0), blank(1))
    delivered = hear(first, News(state=MessageState.DELIVERED, at=NOW, attempt=1))
    assert delivered is not None
    assert await ledger.fold([EntryChange(first, delivered)]) is WriteResult.DONE
    changes = [EntryChange(entry, answered(entry, CallAccepted("p"))) for entry in (second, first)]
    fresh = EntryChange(None, ahead(blank(2)))
    assert await ledger.write(batch, "w1", [fresh, *changes]) is WriteResult.STALE
    assert await ledger.read_batch(INCARNATION, 0) == {delivered.id: delivered, second.id: second}
    assert (await store.message_sums.count(JOB)).tally == {"sending": 1, "delivered": 1}


async def test_an_entry_is_written_ahead_once(store: Store, ledger: MessageLedger) -> None:
    batch = await add_batch(store)
    await put(ledger, blank(0))
    changes = [EntryChange(None, ahead(blank(row))) for row in (1, 0)]
    assert await ledger.write(batch, "w1", changes) is WriteResult.STALE
    assert set(await ledger.read_batch(INCARNATION, 0)) == {blank(0).id}


async def test_messages_to_a_recipient_are_read_by_when_they_were_accepted(store: Store, ledger: MessageLedger) -> None:
    def accepted(seconds: int) -> Message:
        at = NOW + timedelta(seconds=seconds)
        single = SingleWish(channel=Channel.MAIL, namespace="n", created_at=at, due=at)
        return replace(blank(), id=f"0190-{seconds}", single=single)

    await store.jobs.add(a_job(incarnation=INCARNATION, created_at=ns(NOW) + 10**9))
    called = write_ahead(accepted(0), owner="w1", until=NOW + timedelta(seconds=60))
    of_job = replace(ahead(blank()), answered_at=NOW + timedelta(seconds=7), until=NOW + timedelta(seconds=9))
    for entry in (called, of_job, accepted(5)):
        assert await ledger.fold([EntryChange(None, entry)]) is WriteResult.DONE
    found = [await store.message_lists.find_recipient("app", ["ana0@example.com"], limit=2)]
    last = found[0][-1]
    assert found[0].more
    found.append(
        await store.message_lists.find_recipient(
            "app", ["ana0@example.com"], before=(last.at, last.message.id), limit=2
        )
    )
    assert [each.message.id for page in found for each in page] == ["0190-5", of_job.id, "0190-0"]


async def test_pages_of_a_recipient_have_each_message_once_though_it_is_called_meanwhile(
    store: Store, ledger: MessageLedger
) -> None:
    """The first is answered, and the last is called again, while somebody goes from page to page."""
    lists, seen, before = store.message_lists, list[str](), None
    jobs = [a_job(incarnation=f"{n}", created_at=ns(NOW) + n * 10**9) for n in range(4)]
    for job in jobs:
        await store.jobs.add(job)
    called = [ahead(replace(blank(), id=entry_id(job.incarnation, 0, 0))) for job in jobs]
    entries = [answered(called[0], NotNow("later")), *called[1:]]
    for entry in entries:
        assert await ledger.fold([EntryChange(None, entry)]) is WriteResult.DONE
    for change in (None, (3, answered(entries[3], CallAccepted("p"))), (0, ahead(entries[0])), None, None):
        if change is not None:
            assert await ledger.fold([EntryChange(entries[change[0]], change[1])]) is WriteResult.DONE
        page = await lists.find_recipient("app", ["ana0@example.com"], before=before, limit=1)
        seen += [each.message.id for each in page]
        before = (page[-1].at, page[-1].message.id) if page else before
    assert seen == [entry.id for entry in reversed(entries)]


async def test_callbacks_about_two_batches_count_for_each_job_once(store: Store, ledger: MessageLedger) -> None:
    entries = []
    for ordinal in (0, 1):
        batch = await add_batch(store, ordinal)
        entries += await put(ledger, blank(0, ordinal), batch=batch)
    changes = []
    for entry in entries:
        after = hear(entry, News(state=MessageState.FAILED, at=NOW, attempt=1, reason=Reason.HARD_BOUNCE))
        assert after is not None
        changes.append(EntryChange(entry, after))
    assert await ledger.fold(changes) is WriteResult.DONE
    assert await ledger.fold(changes) is WriteResult.STALE
    assert (await store.message_sums.count(JOB)).tally == {"failed": 2, "reasons.hard-bounce": 2}
    assert (await store.message_sums.count("job.other")).tally == {}


async def test_worker_and_callbacks_race_and_the_tallies_stay_exact(store: Store, ledger: MessageLedger) -> None:
    """Each side reads, decides and writes, and again where it was too late; at any moment the tally is a count."""
    batch, rows = await add_batch(store), range(12)
    await put(ledger, *(blank(row) for row in rows))
    counts: list[dict[str, int]] = []

    async def work(seed: int) -> None:
        random = Random(seed)
        for _ in range(25):
            entries = await ledger.read_batch(INCARNATION, 0)
            chosen = random.sample(sorted(entries), 4)
            if seed:
                state = random.choice([MessageState.SENT, MessageState.DELIVERED, MessageState.FAILED])
                after = [hear(entries[one], News(state=state, at=NOW, attempt=1)) for one in chosen]
            else:
                after = [answer(entries[one], 1, CallAccepted(f"p-{one}"), at=NOW, attempts=3) for one in chosen]
            changes = [EntryChange(entries[entry.id], entry) for entry in after if entry is not None]
            if changes:
                await (ledger.fold(changes) if seed else ledger.write(batch, "w1", changes))
            counts.append((await store.message_sums.count(JOB)).tally)

    await asyncio.gather(*(work(seed) for seed in range(3)))
    assert all(sum(count.values()) == len(rows) for count in counts)
    entries = (await ledger.read_batch(INCARNATION, 0)).values()
    assert (await store.message_sums.count(JOB)).tally == dict(Counter(entry.state.value for entry in entries))
