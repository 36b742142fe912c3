"""Cuts cover every row once, wherever they fall, and each id is sent to once, however often it stands in the file."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.audiences import ByteRange
from shared.audience.rules.csv_cuts import MAX_CUT_BYTES, Cutter, Slicer, users_in
from shared.audience.rules.csv_layout import MAX_RECORD_BYTES
from shared.audience.rules.csv_rows import RowReader
from shared.audience.rules.repeats import Repeats
from shared.core.errors import Invalid
from tests.audience.rules.csv_files import MARK, files, in_every_way, is_empty, oracle, pieces

SMALL = [
    b"id\nu1\nu2\nu1\nu3\nu3\nu3\nu4\nu2\nu5",
    MARK + b'id,n\r\n"u,1",1\r\n\r\nu2,2\r\n"u\r\n1",3\r\nu2,4\r\n,5\r\n"",6\r\n\xe2\x80\xa8,7\r\n\r\n',
    b'"id"\r"u""1"\ru2\r\r\r"u2"\ru3\r"u3"\r',
]


def cut(chunks: Iterable[bytes], size: int, *, max_bytes: int = 1_000_000, limit: int = 1_000_000) -> list[ByteRange]:
    reader, cutter = RowReader(), Cutter(size, Repeats(limit), max_bytes=max_bytes)
    cuts = [cut for chunk in chunks for cut in cutter.add(reader.feed(chunk))]
    return [*cuts, *cutter.add(reader.finish()), *cutter.finish()]


def sent(content: bytes, cuts: Iterable[ByteRange]) -> list[list[str]]:
    return [users_in(cut, content[cut.start : cut.end]) for cut in cuts]


@pytest.mark.parametrize(
    "spelled", ["u1", "u1 ", "\tu1", " u1\u00a0", "\u200bu1\u200d", "\ufeffu1", '"u1 "', '"\nu1\r\n"']
)
def test_an_id_is_read_without_what_nobody_sees_around_it(spelled: str) -> None:
    content = f"id\n{spelled}\nu 2\nu1\n".encode()
    cuts = cut([content], 9)
    assert sent(content, cuts) == [["u1", "u 2"]]
    assert Slicer(9).feed(content)[0].users == ["u1", "u 2"]


def flat(lists: Iterable[list[str]]) -> list[str]:
    return [id for each in lists for id in each]


@pytest.mark.parametrize("content", SMALL)
def test_each_id_is_sent_once_at_every_position_of_a_cut(content: bytes) -> None:
    ids = oracle(content.decode())
    for size in range(1, len(ids) + 2):
        cuts = cut([content], size)
        assert flat(sent(content, cuts)) == list(dict.fromkeys(ids))
        assert [each.rows for each in cuts[:-1]] == [size] * (len(cuts) - 1)
        assert sum(each.rows for each in cuts) == len(ids)
        assert sum(each.users for each in cuts) == len(set(ids))
        assert all(cut(pieces(content, at), size) == cuts for at in in_every_way(content))


@pytest.mark.parametrize("content", SMALL)
def test_each_id_is_sent_once_with_every_bound_of_bytes(content: bytes) -> None:
    ids = oracle(content.decode())
    for max_bytes in range(1, len(content) + 1):
        cuts = cut([content], 4, max_bytes=max_bytes)
        assert flat(sent(content, cuts)) == list(dict.fromkeys(ids))
        assert all(each.end - each.start <= max_bytes or each.rows == 1 for each in cuts)
        assert cut(pieces(content, range(len(content))), 4, max_bytes=max_bytes) == cuts


def test_a_cut_takes_all_that_it_may() -> None:
    content = b"id\n" + b"".join(b"user%d\n" % number for number in range(10))
    assert [each.rows for each in cut([content], 3)] == [3, 3, 3, 1]
    assert [each.rows for each in cut([content], 100, max_bytes=24)] == [4, 4, 2]
    assert [each.rows for each in cut([content], 100, max_bytes=23)] == [3, 3, 3, 1]
    assert cut([b"id\n"], 5) == []


def test_a_cut_holds_a_record_of_any_length() -> None:
    assert MAX_CUT_BYTES > MAX_RECORD_BYTES


def test_blank_lines_take_no_bytes_of_a_cut_that_begins_behind_them() -> None:
    content = b"id\n" + b"\n" * 50 + b"u1\n" + b"\n" * 50 + b"u2\nu3\n\n"
    assert cut([content], 10, max_bytes=10) == [ByteRange(53, 56, 1), ByteRange(106, 112, 2)]


def test_a_cut_of_nothing_but_repeats_is_a_cut() -> None:
    content = b"id\nu1\nu2\nu2\nu1\n"
    cuts = cut([content], 2)
    assert cuts == [ByteRange(3, 9, 2), ByteRange(9, 15, 2, b"\xc0")]
    assert [(each.repeats, each.users) for each in cuts] == [(0, 2), (2, 0)]
    assert sent(content, cuts) == [["u1", "u2"], []]


def test_the_bits_of_a_cut_are_its_rows_from_the_highest_on() -> None:
    content = b"id\n" + b"u1\nu1\nu2\nu3\nu4\nu5\nu6\nu7\nu7\nu8\n"
    (only,) = cut([content], 10)
    assert only.repeated == bytes([0b0100_0000, 0b1000_0000])
    assert (only.rows, only.repeats, only.users) == (10, 2, 8)


@given(
    text=files(),
    at=st.lists(st.integers(1, 100)),
    size=st.integers(1, 6),
    max_bytes=st.integers(1, 100),
    limit=st.integers(0, 8),
)
def test_cuts_depend_on_the_file_alone(text: str, at: list[int], size: int, max_bytes: int, limit: int) -> None:
    if is_empty(text):
        return
    content, ids = text.encode(), oracle(text)
    cuts = cut([content], size, max_bytes=max_bytes, limit=limit)
    assert cut(pieces(content, at), size, max_bytes=max_bytes, limit=limit) == cuts
    assert all(before.end <= after.start for before, after in pairwise(cuts))
    assert sum(each.rows for each in cuts) == len(ids)

    # What is remembered is sent once in all, the rest at most once in a cut.
    remembered = list(dict.fromkeys(ids))[:limit]
    by_cut = sent(content, cuts)
    counts = Counter(flat(by_cut))
    assert set(counts) == set(ids)
    assert all(counts[id] == 1 for id in remembered)
    assert all(len(set(each)) == len(each) for each in by_cut)


def test_past_the_limit_repeats_are_found_within_a_cut() -> None:
    content = b"id\nu1\nu2\nu3\nu1\nu3\nu3\nu1\n"
    cuts = cut([content], 3, limit=2)
    assert sent(content, cuts) == [["u1", "u2", "u3"], ["u3"], []]


def test_what_is_not_what_was_cut_is_refused() -> None:
    content = b"id,n\nu1,1\nu2,2\nu1,3\n"
    (only,) = cut([content], 10)
    same = content[only.start :]
    assert users_in(only, same, columns=2) == ["u1", "u2"]
    for changed in (same[:-1], same + b"\n", b"\nu11\nu2,2\nu1,3"[: len(same)], same.replace(b"u2,2\n", b"u2222")):
        with pytest.raises(Invalid) as refused:
            users_in(only, changed)
        assert refused.value.field == "csvPath"
    with pytest.raises(Invalid, match=r"at byte 10$"):
        users_in(only, same.replace(b"u2,2", b"u2 2"))
    with pytest.raises(Invalid, match="columns"):
        users_in(only, same, columns=3)


def test_a_file_that_breaks_half_way_has_given_its_cuts_before() -> None:
    reader, cutter = RowReader(), Cutter(2, Repeats())
    assert cutter.add(reader.feed(b"id\nu1\nu2\nu3\n")) == [ByteRange(3, 9, 2)]
    with pytest.raises(Invalid, match="line 5"):
        reader.feed(b"u\x004\n")
