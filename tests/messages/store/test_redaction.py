"""Entries forget their recipients in steps, whoever writes them at the same time; they count as before."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from shared.messages.rules.ledger import (
    EarlierAttempt,
    Message,
    MessageState,
    News,
    batch_prefix,
    entry_id,
    hear,
    redact,
)
from shared.messages.store_ledger import EntryChange, WriteResult
from shared.store import Store

NOW = datetime(2026, 12, 24, tzinfo=UTC)
INCARNATION = "abc"


def an_entry(ordinal: int, row: int, **fields: object) -> Message:
    standard: dict[str, object] = {
        "app_id": "app",
        "credential_id": "c",
        "to": f"ana{row}@example.com",
        "state": MessageState.FAILED,
        "reason": "refused",
        "detail": "no ana here",
        "attempt": 1,
        "v": 1,
        "ref": "c/7",
    }
    return Message(id=entry_id(INCARNATION, ordinal, row), **(standard | fields))  # type: ignore[arg-type]


async def add(store: Store, *entries: Message) -> None:
    assert await store.messages.fold([EntryChange(None, entry) for entry in entries]) is WriteResult.DONE


async def test_a_row_is_redacted_as_the_rules_say(store: Store) -> None:
    earlier = EarlierAttempt(attempt=1, state=MessageState.FAILED, reason="refused", detail="ana is away", ref="c/6")
    entries = [an_entry(0, 0), an_entry(0, 1, attempt=2, earlier=(earlier,)), an_entry(0, 2, v=0)]
    await add(store, *entries)
    assert await store.redaction.redact_batches(INCARNATION, 0, 1) == 3
    found = await store.messages.read_batch(INCARNATION, 0)
    for entry in entries:
        redacted_at = found[entry.id].redacted_at
        assert redacted_at is not None
        assert found[entry.id] == redact(entry, at=redacted_at)
        assert abs(redacted_at - await store.now()) < timedelta(minutes=1)
    raw = await store._database["messages"].find_one({"_id": entries[1].id})
    assert raw is not None
    assert "ana" not in str(raw), raw


async def test_only_the_batches_that_are_meant_are_redacted(store: Store) -> None:
    await add(store, *(an_entry(ordinal, 0) for ordinal in range(4)))
    await add(store, replace(an_entry(1, 0), id=f"{batch_prefix('abd', 1)}00000"))
    assert await store.redaction.redact_batches(INCARNATION, 1, 3) == 2
    redacted = [
        ordinal for ordinal in range(4) if not (await store.messages.read_batch(INCARNATION, ordinal)).popitem()[1].to
    ]
    assert redacted == [1, 2]
    assert (await store.messages.read_batch("abd", 1)).popitem()[1].to


async def test_who_has_read_an_entry_before_does_not_bring_its_recipient_back(store: Store) -> None:
    entry = an_entry(0, 0, state=MessageState.SENT, reason="")
    await add(store, entry)
    news = News(state=MessageState.DELIVERED, at=NOW, attempt=1, detail="to ana")
    stale = hear(entry, news)
    assert stale is not None
    await store.redaction.redact_batches(INCARNATION, 0, 1)
    assert await store.messages.fold([EntryChange(entry, stale)]) is WriteResult.STALE
    now = await store.messages.get(entry.id)
    assert now is not None
    after = hear(now, news)
    assert after is not None
    assert await store.messages.fold([EntryChange(now, after)]) is WriteResult.DONE
    stored = await store.messages.get(entry.id)
    assert stored is not None
    assert (stored.state, stored.to, stored.detail) == (MessageState.DELIVERED, "", "")


async def test_one_person_is_redacted_and_nobody_else(store: Store) -> None:
    mine = [an_entry(ordinal, 0) for ordinal in range(5)]
    await add(store, *mine, an_entry(0, 1), replace(an_entry(9, 0), app_id="other"))
    addresses = {"ana0@example.com", "Ana0@EXAMPLE.com"}
    assert await store.redaction.redact_recipient("app", addresses, limit=3) == 3
    assert await store.redaction.redact_recipient("app", addresses, limit=3) == 2
    assert await store.redaction.redact_recipient("app", addresses, limit=3) == 0
    found = await store.message_lists.find_recipient("app", addresses, limit=10)
    assert found == []
    assert len(await store.message_lists.find_recipient("other", addresses, limit=10)) == 1
    assert len(await store.message_lists.find_recipient("app", {"ana1@example.com"}, limit=10)) == 1


async def test_what_is_still_to_be_sent_keeps_its_recipient(store: Store) -> None:
    waiting = {"_id": "0190-single", "app_id": "app", "credential_id": "c", "to": "ana0@example.com", "pending": {}}
    await store._database["messages"].insert_one(waiting)
    await add(store, an_entry(0, 0))
    assert await store.redaction.redact_recipient("app", {"ana0@example.com"}, limit=3) == 1
    assert await store._database["messages"].find_one({"_id": "0190-single"}) == waiting


async def test_single_messages_are_redacted_and_forgotten_by_their_age(store: Store) -> None:
    texts = {"app_id": "app", "credential_id": "c", "to": "ana@example.com", "detail": "Ana was away"}
    singles = [
        {"_id": f"s{day}", "personal_since": NOW + timedelta(days=day), "ledger_since": NOW + timedelta(days=day)}
        for day in range(6)
    ]
    rows = store._database["messages"]
    await rows.insert_many([single | texts for single in singles])
    await add(store, an_entry(0, 0))
    before = NOW + timedelta(days=3)
    assert [await store.redaction.redact_singles(before, limit=2) for _ in range(3)] == [2, 1, 0]
    redacted = {row["_id"] async for row in rows.find({"redacted_at": {"$type": "date"}})}
    assert redacted == {"s0", "s1", "s2"}
    raw = await rows.find_one({"_id": "s0"})
    assert raw is not None
    assert "ana" not in str(raw).lower(), raw
    assert [await store.redaction.forget_singles(before, limit=2) for _ in range(3)] == [2, 1, 0]
    assert {row["_id"] async for row in rows.find({"ledger_since": {"$type": "date"}})} == {"s3", "s4", "s5"}
    assert await store.messages.get(entry_id(INCARNATION, 0, 0)) is not None
