"""Batches: why they move, what they say of themselves, what is left of them, and how large their next part may be."""

import msgspec
import pytest
from msgspec.structs import replace

from shared.audience.rules.audiences import ByteRange, KeyRange
from shared.jobs.rules.batches import (
    RECEIPT_ENTRIES,
    RECEIPT_KEY_BYTES,
    TRANSITIONS,
    Batch,
    BatchPart,
    BatchStatus,
    Receipt,
    is_failure,
    is_hopeless,
    is_unfed,
    larger,
    part_limit,
    smaller,
    top,
    verdict,
)

TABLE = Batch(job_id="j", ordinal=0, range=KeyRange(0, 9), size=10)
FILE = Batch(job_id="j", ordinal=0, range=ByteRange(3, 90, 5, repeated=bytes([0b10000000])), size=4)

PLANNED, QUEUED, SENDING, SENT, FAILED, DROPPED = BatchStatus
MOVES = {
    (PLANNED, QUEUED): "it is fed",
    (PLANNED, DROPPED): "its job was stopped",
    (QUEUED, PLANNED): "its job is held",
    (QUEUED, SENDING): "a lane takes it",
    (QUEUED, FAILED): "it cannot be sent",
    (QUEUED, DROPPED): "its job was stopped, or it is too late",
    (SENDING, QUEUED): "nothing of it went out, or not all",
    (SENDING, SENT): "the last of it went out",
    (SENDING, FAILED): "the last of it went out, and too much of it failed",
}


def test_a_batch_moves_for_these_reasons_and_no_other() -> None:
    assert {(status, to) for status, targets in TRANSITIONS.items() for to in targets} == set(MOVES)


def test_the_words_of_a_status_are_the_same_in_every_release() -> None:
    assert [*BatchStatus] == ["planned", "queued", "sending", "sent", "failed", "dropped"]


def test_a_status_tells_what_is_to_be_done() -> None:
    assert {status for status in BatchStatus if is_unfed(status)} == {PLANNED}
    assert {status for status in BatchStatus if replace(TABLE, status=status).is_on_its_way} == {QUEUED, SENDING}
    assert {status for status in BatchStatus if replace(TABLE, status=status).settled} == {SENT, FAILED, DROPPED}
    assert {status for status in BatchStatus if replace(TABLE, status=status).has_failed} == {FAILED}
    assert {status for status in BatchStatus if is_failure(status)} == {FAILED}


def test_a_batch_has_its_id_and_its_chain_in_every_release() -> None:
    batch = replace(TABLE, job_id="j.1", ordinal=1_070)
    assert (batch.id, batch.slot) == ("j.1/00001070", 14)
    assert [replace(TABLE, ordinal=ordinal).slot for ordinal in (0, 31, 32)] == [0, 31, 0]


def test_each_part_is_a_take_of_its_own() -> None:
    takes = [replace(TABLE, owner="lane", parts=parts).take for parts in range(3)]
    assert takes == ["lane", "lane/1", "lane/2"]


def test_a_fresh_batch_waits_to_be_fed_and_nothing_happened_to_it() -> None:
    fresh = Batch(job_id="j", ordinal=0, range=KeyRange(0, 9), size=10)
    assert fresh.status is PLANNED
    assert not fresh.whole
    assert (fresh.turn, fresh.attempts, fresh.parts, fresh.fruitless, fresh.halvings) == (0, 0, 0, 0, 0)
    assert fresh.receipt == Receipt()


def test_a_marker_without_a_number_is_that_of_a_batch_in_one_part() -> None:
    # Earlier versions left such ones on the ledger.
    assert BatchPart(Receipt(sent=3)) == BatchPart(Receipt(sent=3), number=1, next=None)


def test_recipients_are_all_but_the_users_without_a_device() -> None:
    assert Receipt(sent=1, failed=2, skipped=4, held_out=8, unknown=16).recipients == 15
    assert Receipt().recipients == 0


@pytest.mark.parametrize(
    ("batch", "left"),
    [
        (TABLE, 10),
        (replace(TABLE, parts=1, next=4, receipt=Receipt(sent=4)), 6),
        (replace(TABLE, parts=1, next=4, receipt=Receipt(sent=5_000)), 1),  # it has grown: there is more, unread
        (replace(TABLE, size=0), 0),
        (FILE, 4),
        (replace(FILE, parts=1, next=2, receipt=Receipt(sent=7)), 2),  # two users had seven devices
    ],
)
def test_what_is_left_counts_as_failed_where_nobody_can_tell(batch: Batch, left: int) -> None:
    assert batch.recipients_left == left


def test_parts_become_smaller_with_every_take_but_the_first_that_sends_nothing() -> None:
    batch, limits = TABLE, []
    for fruitless in range(9):
        batch = replace(batch, fruitless=fruitless, halvings=smaller(replace(batch, fruitless=fruitless)))
        limits.append(part_limit(batch, 5_000))
    assert limits == [5_000, 1_250, 312, 78, 19, 4, 1, 1, 1]


@pytest.mark.parametrize(("lasted", "halvings"), [(0.1, 4), (1.875, 4), (1.876, 5), (3.75, 5), (3.751, 6), (14.0, 6)])
def test_parts_become_larger_as_fast_as_they_go_out(lasted: float, halvings: int) -> None:
    batch = replace(TABLE, halvings=6)
    assert larger(batch, lasted, patience=15.0) == halvings
    assert larger(replace(batch, halvings=1), 0.0, patience=15.0) == 0


def test_a_batch_is_given_up_only_after_thousands_of_takes() -> None:
    assert not is_hopeless(replace(TABLE, fruitless=4_999))
    assert is_hopeless(replace(TABLE, fruitless=5_000))


def test_a_bound_receipt_has_the_same_sums_and_its_most_frequent_keys() -> None:
    many = {f"locale-{n:02}": 100 - n for n in range(50)}
    receipt = Receipt(1, 2, 3, 4, 5, reasons={"unregistered": 2}, locales=many).limit_entries()
    frequent = dict(list(many.items())[: RECEIPT_ENTRIES - 1])
    rest = sum(many.values()) - sum(frequent.values())
    assert receipt == Receipt(1, 2, 3, 4, 5, {"unregistered": 2}, {**frequent, "other": rest})


def test_a_bound_receipt_is_small_enough_for_a_marker() -> None:
    long = {f"{n:02}{'x' * (RECEIPT_KEY_BYTES - 2)}": 10**9 for n in range(50)}
    assert len(msgspec.json.encode(Receipt(reasons=long, locales=long).limit_entries())) < 2_500


def test_a_key_is_folded_by_its_bytes() -> None:
    fits, long = "ä" * (RECEIPT_KEY_BYTES // 2), "ä" * (RECEIPT_KEY_BYTES // 2) + "x"
    assert top({fits: 1, long: 2}) == {fits: 1, "other": 2}


def test_other_needs_no_place_among_the_frequent_keys() -> None:
    full = {f"{n:02}": 5 for n in range(RECEIPT_ENTRIES - 1)} | {"other": 1_000}
    assert top(full) == full


def test_a_batch_fails_only_above_its_share() -> None:
    receipt = Receipt(sent=18, failed=1, skipped=1)
    assert verdict(receipt, max_failed_share=0.05) is SENT
    assert verdict(replace(receipt, failed=2), max_failed_share=0.05) is FAILED
    assert verdict(Receipt(), max_failed_share=0.0) is SENT


def test_a_part_is_never_halved_out_of_sight() -> None:
    worn = replace(TABLE, halvings=29, fruitless=1)
    assert smaller(worn) == smaller(replace(worn, halvings=30)) == 30
    assert larger(replace(TABLE, halvings=30), 0.0, patience=15.0) == 28
