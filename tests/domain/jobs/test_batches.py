"""What a batch says of itself: what is left of it, and how large its next part may be."""

import pytest
from msgspec.structs import replace

from shared.domain.audience.ranges import ByteRange, KeyRange
from shared.domain.jobs.batches import Batch, Receipt, is_hopeless, larger, part_limit, smaller

TABLE = Batch(job_id="j", ordinal=0, range=KeyRange(0, 9), size=10)
FILE = Batch(job_id="j", ordinal=0, range=ByteRange(3, 90, 5, repeated=bytes([0b10000000])), size=4)


@pytest.mark.parametrize(
    ("batch", "left"),
    [
        (TABLE, 10),
        (replace(TABLE, parts=1, next=4, receipt=Receipt(sent=4)), 6),
        (replace(TABLE, parts=1, next=4, receipt=Receipt(sent=5_000)), 1),  # it has grown: there is more, unread
        (FILE, 4),
        (replace(FILE, size=0), 4),  # nobody has read yet which of them belong to the zone
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


@pytest.mark.parametrize(("lasted", "halvings"), [(0.1, 4), (1.8, 4), (2.0, 5), (3.7, 5), (4.0, 6), (14.0, 6)])
def test_parts_become_larger_as_fast_as_they_go_out(lasted: float, halvings: int) -> None:
    batch = replace(TABLE, halvings=6)
    assert larger(batch, lasted, patience=15.0) == halvings
    assert larger(replace(batch, halvings=1), 0.0, patience=15.0) == 0


def test_a_batch_is_given_up_only_after_thousands_of_takes() -> None:
    assert not is_hopeless(replace(TABLE, fruitless=4_999))
    assert is_hopeless(replace(TABLE, fruitless=5_000))
