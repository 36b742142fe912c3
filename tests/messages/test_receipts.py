"""Receipts: what providers tell changes entries, tallies and suppressions together, whoever tells it how often."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from services.worker.messages.entries import EntryWriter, Note, Prepared, Purpose
from shared.audience.rules.audiences import KeyRange
from shared.core.errors import Unavailable
from shared.jobs.rules.batches import Batch, BatchStatus, batch_id
from shared.messages.receipts import FOLDED_AT_ONCE, EarlyNews, ReceiptOutcome, Receipts
from shared.messages.rules.answers import Answer, CallAccepted, CallUnanswered, Channel, NotNow, Reason
from shared.messages.rules.credentials import Credential
from shared.messages.rules.ledger import Message, MessageState, answer, entry_id, recover, redact, write_ahead
from shared.messages.rules.suppressions import SuppressionCause
from shared.messages.store_ledger import EntryChange, MessageLedger, WriteResult
from shared.providers.base import Callback, CallbackNews, CallbackSuppression, tell_refusal
from shared.runtime.faults import FaultInjected, arm
from shared.store import Store
from tests.clocks import ManualClock
from tests.jobs.made import added
from tests.tiers import and_rarely

JOB, INCARNATION, APP = "job.abc", "abc", "app"
POST = "0190b5a2-0000-7000-8000-000000000001"
OTHER = "0190b5a2-0000-7000-8000-000000000002"
STORED, UNCHANGED, SKIPPED = ReceiptOutcome.STORED, ReceiptOutcome.UNCHANGED, ReceiptOutcome.SKIPPED
SENT, DELIVERED, READ = MessageState.SENT, MessageState.DELIVERED, MessageState.READ
FAILED, INVALID = MessageState.FAILED, MessageState.INVALID


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def receipts(store: Store, clock: ManualClock) -> Receipts:
    await store.messages.setup()
    await store.suppressions.setup()
    return Receipts(store, clock)


def credential(id_: str = POST) -> Credential:
    at = ManualClock().now()
    return Credential(
        id=id_, app_id=APP, name="main", kind="sendgrid", fields={}, rate=10, max_in_flight=20,
        test_recipient="t@example.com", created_by="a", created_at=at, updated_at=at,
    )  # fmt: skip


async def add_batch(store: Store, ordinal: int = 0) -> str:
    batch = Batch(
        job_id=JOB, ordinal=ordinal, range=KeyRange(0, 9), size=9, status=BatchStatus.SENDING, owner="w1", turn=1
    )
    assert await store.batches.add_page([batch])
    return batch.id


async def put(store: Store, rows: Iterable[int], ordinal: int = 0, *, credential_id: str = POST) -> list[Message]:
    """Entries that are written ahead, in a batch of the job."""
    blanks = [
        Message(
            id=entry_id(INCARNATION, ordinal, row),
            app_id=APP,
            credential_id=credential_id,
            to=f"ana{row}.{ordinal}@example.com",
        )
        for row in rows
    ]
    soon = ManualClock().now() + timedelta(seconds=2)
    written = [write_ahead(blank, owner="w1", until=soon) for blank in blanks]
    changes = [EntryChange(None, entry) for entry in written]
    assert await store.messages.write(batch_id(JOB, ordinal), "w1", changes) is WriteResult.DONE
    return written


async def accept(store: Store, entry: Message, provider_id: str, *, ordinal: int = 0) -> Message:
    after = answer(entry, entry.attempt, CallAccepted(provider_id), at=ManualClock().now(), attempts=3)
    assert after is not None
    assert await store.messages.write(batch_id(JOB, ordinal), "w1", [EntryChange(entry, after)]) is WriteResult.DONE
    return after


def key(row: int, ordinal: int = 0, attempt: int = 1) -> str:
    return f"{entry_id(INCARNATION, ordinal, row)}~{attempt}"


def news(row: int, state: MessageState, **fields: object) -> CallbackNews:
    return CallbackNews(key=key(row), state=state, **fields)  # type: ignore[arg-type]


async def fold(
    receipts: Receipts, *told: CallbackNews, at: datetime | None = None, of: str = POST
) -> dict[ReceiptOutcome, int]:
    return dict(await receipts.fold(credential(of), Channel.MAIL, Callback(news=told, at=at)))


async def unsubscribe(
    receipts: Receipts, told: CallbackSuppression, at: datetime | None = None
) -> dict[ReceiptOutcome, int]:
    return dict(await receipts.fold(credential(), Channel.MAIL, Callback(suppressions=(told,), at=at)))


async def entry_of(store: Store, row: int = 0, ordinal: int = 0) -> Message:
    found = await store.messages.get(entry_id(INCARNATION, ordinal, row))
    assert found is not None
    return found


async def tally(store: Store) -> dict[str, int]:
    return (await store.message_sums.count(JOB)).tally


def answered(entry: Message, given: Answer, *, at: datetime, attempt: int = 1) -> Note:
    """That this came of a call whose batch somebody else has by now."""
    return Note(Prepared(entry, {}, is_stored=True), Purpose.ANSWER, given=given, attempt=attempt, at=at)


async def record_late(store: Store, *late: Note) -> None:
    await EntryWriter(store, batch_id="somebody else's", owner="w1").record_late(late)


async def test_a_callback_before_the_record_of_the_answer_stays(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    [entry] = await put(store, [0])
    assert await fold(receipts, news(0, DELIVERED, provider_id="p-1")) == {STORED: 1}
    told = await entry_of(store)
    assert (told.state, told.ref, told.owner) == (DELIVERED, f"{POST}/p-1", "")
    await record_late(store, answered(entry, CallAccepted("p-1"), at=ManualClock().now()))
    assert await entry_of(store) == told
    assert await tally(store) == {"delivered": 1}


async def test_queued_delivered_failed_delivered_is_failed(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    await put(store, [0])
    refusal = tell_refusal(Reason.UNDELIVERED, "30008: no", key=key(0))
    outcomes = [await fold(receipts, each) for each in (news(0, DELIVERED), refusal, news(0, DELIVERED))]
    assert outcomes == [{STORED: 1}, {STORED: 1}, {UNCHANGED: 1}]
    last = await entry_of(store)
    assert (last.state, last.reason, last.detail) == (FAILED, "undelivered", "30008: no")
    assert await tally(store) == {"failed": 1, "reasons.undelivered": 1}


async def test_a_replay_changes_nothing(store: Store, receipts: Receipts, clock: ManualClock) -> None:
    await add_batch(store)
    await put(store, range(3))
    post = (news(0, DELIVERED), news(1, READ), tell_refusal(Reason.HARD_BOUNCE, "no", key=key(2)))
    assert await fold(receipts, *post, at=clock.now()) == {STORED: 3}
    first = [await entry_of(store, row) for row in range(3)]
    clock.advance(86_400)
    assert await fold(receipts, *post, at=clock.now()) == {UNCHANGED: 3}
    assert [await entry_of(store, row) for row in range(3)] == first


async def test_several_news_of_one_message_in_one_post_are_one_change(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    await put(store, [0, 1])
    told = [news(0, SENT), news(0, READ), news(1, SENT), news(0, DELIVERED)]
    assert await fold(receipts, *told) == {STORED: 3, UNCHANGED: 1}
    assert (await entry_of(store)).state is READ
    assert await tally(store) == {"read": 1, "sent": 1}


async def test_a_message_is_known_by_the_providers_id_too(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    [entry] = await put(store, [0])
    by_id = tell_refusal(Reason.UNDELIVERED, "", provider_id="p-1")
    assert await fold(receipts, by_id) == {SKIPPED: 1}
    await accept(store, entry, "p-1")
    assert await fold(receipts, by_id, of=OTHER) == {SKIPPED: 1}
    assert await fold(receipts, by_id) == {STORED: 1}
    assert (await entry_of(store)).state is FAILED


async def test_an_id_that_means_several_messages_means_none(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    for entry in await put(store, range(5)):
        await accept(store, entry, "ok" if entry.id != entry_id(INCARNATION, 0, 4) else "p-4")
    told = [CallbackNews(provider_id=name, state=DELIVERED) for name in ("ok", "p-4")]
    assert await fold(receipts, *told) == {SKIPPED: 1, STORED: 1}
    assert await tally(store) == {"sent": 4, "delivered": 1}


async def test_of_an_attempt_that_nobody_can_tell_only_good_news_counts(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    await put(store, [0])
    message_id = entry_id(INCARNATION, 0, 0)
    bad = tell_refusal(Reason.UNDELIVERED, "", key=message_id, provider_id="p-x")
    assert await fold(receipts, bad) == {UNCHANGED: 1}
    assert await fold(receipts, CallbackNews(key=message_id, provider_id="p-x", state=SENT)) == {STORED: 1}


async def test_a_message_of_another_credential_is_unknown(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    await put(store, [0], credential_id=OTHER)
    assert await fold(receipts, news(0, DELIVERED)) == {SKIPPED: 1}
    assert await tally(store) == {"sending": 1}
    assert await fold(receipts, news(0, DELIVERED), of=OTHER) == {STORED: 1}


async def test_what_is_known_is_stored_first_and_what_is_young_comes_again(
    store: Store, receipts: Receipts, clock: ManualClock
) -> None:
    await add_batch(store)
    await put(store, [0])
    post = (news(7, DELIVERED), news(0, DELIVERED))
    with pytest.raises(EarlyNews):
        await fold(receipts, *post, at=clock.now() - timedelta(minutes=9))
    assert (await entry_of(store)).state is DELIVERED
    assert await fold(receipts, *post, at=clock.now() - timedelta(minutes=11)) == {SKIPPED: 1, UNCHANGED: 1}
    assert await fold(receipts, *post) == {SKIPPED: 1, UNCHANGED: 1}


@pytest.mark.parametrize("minutes", [-11, 11, 100_000])
async def test_who_signs_anew_each_time_is_not_asked_for_ever(
    receipts: Receipts, clock: ManualClock, minutes: int
) -> None:
    told = news(7, DELIVERED, at=clock.now() - timedelta(minutes=abs(minutes)))
    at = clock.now() if minutes > 0 else clock.now() + timedelta(minutes=11)
    assert await fold(receipts, told if minutes > 0 else news(7, DELIVERED), at=at) == {SKIPPED: 1}


async def test_the_test_message_of_a_credential_has_no_entry(receipts: Receipts, clock: ManualClock) -> None:
    told = CallbackNews(key=f"test-{POST}-0a1b2c3d~1", state=DELIVERED)
    assert await fold(receipts, told, at=clock.now()) == {ReceiptOutcome.TEST: 1}
    with pytest.raises(EarlyNews):
        await fold(receipts, told, at=clock.now(), of=OTHER)


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (Reason.HARD_BOUNCE, SuppressionCause.BOUNCE),
        (Reason.COMPLAINT, SuppressionCause.COMPLAINT),
        (Reason.UNSUBSCRIBED, SuppressionCause.UNSUBSCRIBE),
        (Reason.SOFT_BOUNCE, None),
        (Reason.SUPPRESSED, None),
        (Reason.UNREGISTERED, None),
    ],
)
async def test_hard_bounces_complaints_and_unsubscriptions_suppress_the_address(
    store: Store, receipts: Receipts, reason: Reason, cause: SuppressionCause | None
) -> None:
    await add_batch(store)
    [entry, other] = await put(store, [0, 1])
    await fold(receipts, news(1, DELIVERED), tell_refusal(reason, "no", key=key(0)))
    found = await store.suppressions.find(APP, Channel.MAIL, [entry.to, other.to])
    told = {address: (each.cause, each.message_id, each.list) for address, each in found.items()}
    assert told == ({} if cause is None else {entry.to: (cause, entry.id, "")})


async def test_a_complaint_about_a_redacted_message_suppresses_whom_the_provider_names(
    store: Store, receipts: Receipts
) -> None:
    batch = await add_batch(store)
    entries = await put(store, range(3))
    redacted = [EntryChange(entry, redact(entry, at=ManualClock().now())) for entry in entries]
    assert await store.messages.write(batch, "w1", redacted) is WriteResult.DONE
    told = ["Ana@EXAMPLE.com", "", "nobody"]
    complaints = [tell_refusal(Reason.COMPLAINT, "", key=key(row), recipient=to) for row, to in enumerate(told)]
    assert await fold(receipts, *complaints) == {STORED: 3}
    found = await store.suppressions.find(APP, Channel.MAIL, ["Ana@example.com", "", "nobody"])
    assert [(each.address, each.cause) for each in found.values()] == [("Ana@example.com", SuppressionCause.COMPLAINT)]
    assert (await entry_of(store)).to == "", "the message knows nobody again"


async def test_a_late_answer_resolves_what_was_unknown_and_no_other_attempt(store: Store, receipts: Receipts) -> None:
    batch = await add_batch(store)
    entries = await put(store, range(3))
    soon = ManualClock().now() + timedelta(seconds=5)
    changes = []
    for entry in entries:
        unknown = recover(entry, owner="w2", now=soon, repeats=False)
        assert unknown is not None
        changes.append(EntryChange(entry, unknown))
    assert await store.messages.write(batch, "w1", changes) is WriteResult.DONE
    given: list[tuple[int, Answer]] = [(1, CallAccepted("p-0")), (1, NotNow("busy")), (2, CallAccepted("p-2"))]
    absent = replace(entries[0], id="no-such")
    for _ in range(2):
        late = [answered(entry, one, attempt=nth, at=soon) for entry, (nth, one) in zip(entries, given, strict=True)]
        await record_late(store, *late, answered(absent, CallUnanswered(), at=soon))
        states = [(await entry_of(store, row)).state for row in range(3)]
        assert states == [SENT, MessageState.FAILED, MessageState.UNKNOWN]
        assert await tally(store) == {"sent": 1, "failed": 1, "reasons.gave-up": 1, "unknown": 1}


async def test_many_in_one_post_and_many_posts_at_once(store: Store, receipts: Receipts) -> None:
    rows = FOLDED_AT_ONCE + 100
    await add_batch(store)
    for start in range(0, rows, 200):
        await put(store, range(start, min(start + 200, rows)))
    assert await fold(receipts, *(news(row, SENT) for row in range(rows))) == {STORED: rows}
    posts = await asyncio.gather(*(fold(receipts, news(row, DELIVERED)) for row in range(rows)))
    assert posts == [{STORED: 1}] * rows
    assert await tally(store) == {"delivered": rows}


async def test_after_a_write_whose_reply_was_lost_the_provider_comes_again(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    await put(store, [0])
    bounce = tell_refusal(Reason.HARD_BOUNCE, "no", key=key(0))
    arm("callback.after_fold=raise")
    with pytest.raises(FaultInjected):
        await fold(receipts, bounce)
    assert await fold(receipts, bounce) == {UNCHANGED: 1}
    assert await tally(store) == {"invalid": 1, "reasons.hard-bounce": 1}


@pytest.mark.parametrize("operation", ["with_ids", "fold"])
async def test_with_the_store_away_nobody_is_told_that_it_is_stored(
    store: Store, receipts: Receipts, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    await add_batch(store)
    await put(store, [0])

    async def be_away(*_: object, **__: object) -> None:
        raise Unavailable("MongoDB cannot be reached")

    monkeypatch.setattr(store.messages, operation, be_away)
    with pytest.raises(Unavailable):
        await fold(receipts, news(0, DELIVERED))


@pytest.mark.parametrize("seed", and_rarely(0, rarely=range(1, 4)))
async def test_two_processes_and_a_worker_race_and_the_tallies_stay_a_count_of_the_entries(
    store: Store, clock: ManualClock, seed: int
) -> None:
    """Each process is told the same by several posts, in an order of its own, while answers are recorded."""
    await store.messages.setup()
    rows, batches = 12, 2
    entries = []
    for ordinal in range(batches):
        await add_batch(store, ordinal)
        entries += await put(store, range(rows), ordinal)
    told = []
    final: dict[str, MessageState] = {}
    random = Random(seed)
    order = [SENT, DELIVERED, READ, FAILED, INVALID]
    for entry in entries:
        states = random.sample(order, random.randint(1, 3))
        final[entry.id] = max([SENT, *states], key=order.index)
        for state in states:
            reason = {FAILED: "undelivered", INVALID: "complaint"}.get(state, "")
            told.append(CallbackNews(key=f"{entry.id}~1", state=state, reason=reason))

    async def tell(process: Receipts, chance: Random) -> None:
        mine = told * 2
        chance.shuffle(mine)
        while mine:
            count = chance.randint(1, 9)
            post, mine = mine[:count], mine[count:]
            await fold(process, *post)

    async def work() -> None:
        for entry in entries:
            await record_late(store, answered(entry, CallAccepted(f"p-{entry.id}"), at=clock.now()))

    first, second = Receipts(store, clock), Receipts(store, clock)
    await asyncio.gather(tell(first, Random(seed)), tell(second, Random(-seed - 1)), work(), tell(first, random))
    found = [
        entry
        for ordinal in range(batches)
        for entry in (await store.messages.read_batch(INCARNATION, ordinal)).values()
    ]
    assert {entry.id: entry.state for entry in found} == final
    assert {entry.ref for entry in found} == {f"{POST}/p-{entry.id}" for entry in entries}
    counted = Counter(entry.state.value for entry in found)
    counted.update(f"reasons.{entry.reason}" for entry in found if entry.reason)
    assert await tally(store) == dict(counted)
    complained = [entry.to for entry in found if entry.state is INVALID]
    assert sorted(await store.suppressions.find(APP, Channel.MAIL, [entry.to for entry in entries])) == sorted(
        complained
    )


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "1969-12-31T23:59:59Z"])
async def test_an_instant_that_cannot_be_kept_is_none(store: Store, receipts: Receipts, at: str) -> None:
    """A server of the kind `http` may sign any."""
    await add_batch(store)
    await put(store, [0])
    said = datetime.fromisoformat(at)
    assert await fold(receipts, news(0, DELIVERED, at=said), at=said) == {STORED: 1}
    assert (await entry_of(store)).delivered_at == ManualClock().now()


@pytest.mark.slow
async def test_news_that_cannot_be_stored_spoil_nobody_elses(store: Store, receipts: Receipts) -> None:
    """They come together with those of other credentials, of others' apps."""
    await add_batch(store)
    await put(store, range(9))
    unstorable = news(4, DELIVERED, detail="\ud800")
    first = fold(receipts, news(8, SENT))  # whoever is first goes alone, and the others together behind it
    others = [fold(receipts, news(row, DELIVERED)) for row in (0, 1, 2, 3, 5, 6, 7)]
    _, spoiled, *found = await asyncio.gather(
        first, fold(receipts, unstorable, news(8, DELIVERED)), *others, return_exceptions=True
    )
    assert isinstance(spoiled, UnicodeEncodeError)
    assert found == [{STORED: 1}] * 7
    assert await tally(store) == {"delivered": 8, "sending": 1}


async def test_who_unsubscribes_with_the_provider_gets_no_more_of_the_list(store: Store, receipts: Receipts) -> None:
    await add_batch(store)
    await put(store, [0, 1])
    await added(
        store, incarnation=INCARNATION, options={"channel": "mail", "recipient_column": "recipient", "list": "news"}
    )
    told = CallbackSuppression(key=key(0), recipient="other@example.com")

    assert await unsubscribe(receipts, told) == await unsubscribe(receipts, told) == {STORED: 1}

    [found] = await store.suppressions.page(APP, limit=9)
    assert (found.address, found.list, found.cause) == ("ana0.0@example.com", "news", SuppressionCause.UNSUBSCRIBE)
    assert found.unsubscribed_at == ManualClock().now()
    assert (await entry_of(store)).v == 1


async def test_news_without_ids_suppress_the_address_that_they_tell(
    store: Store, receipts: Receipts, clock: ManualClock
) -> None:
    dead = tell_refusal(Reason.HARD_BOUNCE, "", recipient="Ana@Example.com")
    soft = tell_refusal(Reason.SOFT_BOUNCE, "", recipient="bob@example.com")
    blank = tell_refusal(Reason.HARD_BOUNCE, "")

    assert await fold(receipts, dead, soft, blank, at=clock.now()) == {STORED: 1, SKIPPED: 2}
    assert await unsubscribe(receipts, CallbackSuppression(recipient="cid@example.com"), clock.now()) == {STORED: 1}

    found = {each.address: each.cause for each in await store.suppressions.page(APP, limit=9)}
    assert found == {
        "Ana@example.com": SuppressionCause.BOUNCE,
        "cid@example.com": SuppressionCause.UNSUBSCRIBE,
    }


async def test_what_the_provider_has_suppressed_is_suppressed_for_all_lists(
    store: Store, receipts: Receipts, clock: ManualClock
) -> None:
    await add_batch(store)
    [entry] = await put(store, [0])
    known = CallbackSuppression(key=key(0), cause=SuppressionCause.COMPLAINT)
    gone = CallbackSuppression(recipient="bob@example.com", cause=SuppressionCause.BOUNCE)

    assert await unsubscribe(receipts, known, clock.now()) == {STORED: 1}
    assert await unsubscribe(receipts, gone, clock.now()) == {STORED: 1}

    found = {each.address: (each.cause, each.list) for each in await store.suppressions.page(APP, limit=9)}
    assert found == {
        entry.to: (SuppressionCause.COMPLAINT, ""),
        "bob@example.com": (SuppressionCause.BOUNCE, ""),
    }


async def test_an_unsubscription_may_overtake_the_record_of_its_call(receipts: Receipts, clock: ManualClock) -> None:
    told = CallbackSuppression(key=key(7), recipient="ana@example.com")
    with pytest.raises(EarlyNews):
        await unsubscribe(receipts, told, clock.now())
    assert await unsubscribe(receipts, told, clock.now() - timedelta(hours=1)) == {STORED: 1}
    of_others = CallbackSuppression(provider_id="theirs", recipient="ana@example.com")
    assert await unsubscribe(receipts, of_others, clock.now() - timedelta(hours=1)) == {SKIPPED: 1}


class LaggingLedger:
    """The ledger of a replica set without a majority for a while: its reads show an entry as it was, so many times."""

    def __init__(self, ledger: MessageLedger, before: Message, reads: int) -> None:
        self._ledger, self._before, self._reads = ledger, before, reads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def with_ids(self, ids: list[str]) -> dict[str, Message]:
        self._reads -= 1
        return {self._before.id: self._before} if self._reads >= 0 else await self._ledger.with_ids(ids)


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_writer_pauses_longer_and_longer_while_no_majority_shows_what_has_changed(
    store: Store, receipts: Receipts, is_late: bool
) -> None:
    await add_batch(store)
    [entry] = await put(store, [0])
    await fold(receipts, news(0, DELIVERED, provider_id="p-1"))
    pauses: list[float] = []

    async def rest(seconds: float) -> None:
        pauses.append(seconds)

    def writer(reads: int) -> EntryWriter:
        lagging = SimpleNamespace(messages=LaggingLedger(store.messages, entry, reads), suppressions=store.suppressions)
        return EntryWriter(cast("Store", lagging), batch_id=batch_id(JOB, 0), owner="w1", rest=rest)

    note = answered(entry, CallAccepted("p-1"), at=ManualClock().now())
    if is_late:
        await writer(reads=10).record_late([note])
    else:
        with pytest.raises(Unavailable, match="no majority"):
            await writer(reads=1).write([note], patience_seconds=0)
        await writer(reads=9).write([note])
    assert pauses == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1, 1, 1])
    assert await tally(store) == {"delivered": 1}
