"""Rows are what Python's csv module reads, whatever the chunks; a broken file is refused where it breaks."""

import tracemalloc
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.audience.rules.csv_layout import MAX_RECORD_BYTES
from shared.audience.rules.csv_rows import RowReader
from shared.core.errors import Invalid
from tests.audience.rules.csv_by_bytes import Broken, by_bytes, line_of
from tests.audience.rules.csv_files import MARK, columns_of, files, in_every_way, is_empty, oracle, pieces

Row = tuple[bytes, int, int]


def read(chunks: Iterable[bytes], reader: RowReader | None = None) -> list[Row]:
    reader = reader or RowReader()
    found = [*(reader.feed(chunk) for chunk in chunks), reader.finish()]
    return [
        (id, start, end)
        for rows in found
        for id, start, end in zip(rows.ids, rows.starts.tolist(), rows.ends.tolist(), strict=True)
    ]


def told(chunks: Iterable[bytes], reader: RowReader | None = None) -> str:
    with pytest.raises(Invalid) as refused:
        read(chunks, reader)
    assert refused.value.field == "csvPath"
    return refused.value.reason


def outcome(content: bytes, at: Iterable[int], *, record_bytes: int) -> list[Row] | str:
    try:
        return read(pieces(content, at), RowReader(record_bytes=record_bytes))
    except Invalid as error:
        return error.reason


@given(text=files(), mark=st.booleans(), at=st.lists(st.integers(1, 100)))
@example(text="id\na\u2028b\nc\x85d\ne\x0bf", mark=False, at=[])
def test_rows_are_those_of_the_csv_module(text: str, mark: bool, at: list[int]) -> None:
    content = mark * MARK + text.encode()
    if is_empty(content.decode()):
        assert told(pieces(content, at)) == "the file is empty"
    else:
        assert [id.decode() for id, _, _ in read(pieces(content, at))] == oracle(content.decode())


@pytest.mark.parametrize(
    "content",
    [
        b"id\nu1\nu2\r\nu3\r\r\n\nu4\r",
        b'id,n\r\n"u,1",x\r\n"u\r\n2","""y"""\r\n\xc3\xa9\xf0\x9f\x98\x80,\r\n,z',
        MARK + b'"i""d"\r"u\r1"\r""\r" "\ru4',
        MARK + b"\n\r\n id \n u1 \n\n",
    ],
)
def test_chunks_make_no_difference(content: bytes) -> None:
    whole = read([content])
    assert [id.decode() for id, _, _ in whole] == oracle(content.decode())
    assert all(read(pieces(content, at)) == whole for at in in_every_way(content))


@given(
    content=st.lists(
        st.sampled_from([b'"', b'"', b",", b"\n", b"\r", b"a", b"bc", b"\0", b"\xc3\xa9", b"\xe2\x82", b"\xff", MARK]),
        max_size=24,
    ).map(b"".join),
    at=st.lists(st.integers(1, 30)),
    record_bytes=st.integers(4, 20),
)
@example(content=b"abc\xff\n", at=[], record_bytes=4)
@example(content=b"abc\xe2(\n", at=[], record_bytes=4)
@example(content=b"\n\r\na\r", at=[], record_bytes=4)
def test_any_bytes_are_read_or_refused_as_by_one_who_goes_byte_by_byte(
    content: bytes, at: list[int], record_bytes: int
) -> None:
    got = outcome(content, at, record_bytes=record_bytes)
    match by_bytes(content, record_bytes):
        case Broken(what="empty"):
            assert got == "the file is empty"
        case Broken(what, byte):
            assert isinstance(got, str)
            assert what in got
            assert got.endswith(f", in line {line_of(content, byte)}")
        case rows:
            assert got == rows


@given(text=files(), data=st.data())
def test_a_range_of_whole_records_reads_as_in_the_file(text: str, data: st.DataObject) -> None:
    content = text.encode()
    rows = [] if is_empty(text) else read([content])
    columns = data.draw(st.sampled_from([None, columns_of(text)]))
    for first, (_, start, _) in enumerate(rows):
        last = data.draw(st.integers(first, len(rows) - 1))
        end = rows[last][2]
        begin = data.draw(st.sampled_from([start, rows[first - 1][2] if first else start]))
        again = read([content[begin:end]], RowReader(start=begin, columns=columns))
        assert again == rows[first : last + 1]


BROKEN = [
    (b"id\nu1\nu\x002\n", "a NUL byte", 3),
    (b"id\r\nu1\r\n\r\n\xff\r\n", "invalid UTF-8", 4),
    (b"id\ru1\ru\xc3\r", "invalid UTF-8", 3),
    (b"id\nu1\nu2\xe2\x82", "invalid UTF-8", 3),
    (b"id\n\xed\xa0\x80\n", "invalid UTF-8", 2),
    ("id\nu1\n".encode("utf-16"), "UTF-16 where UTF-8 must be", 1),
    ("\ufeffid\nu1\n".encode("utf-16-be"), "UTF-16 where UTF-8 must be", 1),
    (b"id,a\nu1,b\nu2\n", "fewer columns than the first line's 2", 3),
    (b"id,a\nu1,b\n\nu2,,\n", "more columns than the first line's 2", 4),
    (b"id\nu1\nu2,", "more columns than the first line's 1", 3),
    (b'id\n"u\n1"\nu2,b\n', "more columns than the first line's 1", 4),
    (b'id\nu1\nu"2"\n', "a quote inside a field that does not begin with one", 3),
    (b'id,a\nu1, "b"\n', "a quote inside a field that does not begin with one", 2),
    (MARK + b'"id"\nu1\n"u2" \n', "neither a comma nor a line end behind a closing quote", 3),
    (b'id\n"u1"u"2"\n', "neither a comma nor a line end behind a closing quote", 2),
    (b'id\nu1\n"u2\nu3\n', "a quote that is never closed", 3),
    (b'id,a\nu1,"b""\n', "a quote that is never closed", 2),
    (b'id,a\n"u""1",""\nu2,"b""c""', "a quote that is never closed", 3),
    (b'id,a,b\nu2,"b","c\n', "a quote that is never closed", 2),
    (b"id,a\nu1,b\0,c\n", "a NUL byte", 2),
    (b"id\nu1\n" + b"x" * 1025 + b"\n", "an id longer than 1,024 bytes", 3),
]


@pytest.mark.parametrize(("content", "what", "line"), BROKEN)
def test_a_broken_file_is_refused_by_line(content: bytes, what: str, line: int) -> None:
    expected = f"the file has {what}, in line {line}"
    for at in in_every_way(content):
        assert told(pieces(content, at)) == expected


def test_in_the_middle_of_a_file_only_the_byte_is_told() -> None:
    assert told([b"u1\nu\x002\n"], RowReader(start=1000)) == "the file has a NUL byte, at byte 1004"
    assert told([b"\xff\xfeu\0"], RowReader(start=1000)) == "the file has invalid UTF-8, at byte 1000", "and no mark"
    assert told([b"u1\n"], RowReader(start=1000, columns=2)) == (
        "the file has fewer columns than the first line's 2, at byte 1000"
    )


@pytest.mark.parametrize("content", [b"", MARK, b"\n", b"\r\n\r\n\r", MARK + b"\n\n"])
def test_an_empty_file_is_refused(content: bytes) -> None:
    for at in in_every_way(content):
        assert told(pieces(content, at)) == "the file is empty"


@pytest.mark.parametrize("content", [b"id", b"id\n", b"u1\r\n\r\n", MARK + b'"id",a'])
def test_a_file_of_a_header_has_no_rows(content: bytes) -> None:
    assert read([content]) == []


@pytest.mark.parametrize(
    ("beginning", "what"),
    [
        (b"", "a line longer than 1,048,576 bytes"),
        (b'a"', "a quote inside a field that does not begin with one"),
        (b'"', "a quote that is not closed within 1,048,576 bytes"),
        (b'u1,"a""', "more columns than the first line's 1"),
        (b"\0", "a NUL byte"),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [64 * 1024, 1_000_000, 100_000_000])
def test_a_line_of_10_mb_is_refused_without_being_collected(beginning: bytes, what: str, chunk_bytes: int) -> None:
    taken = 0

    def chunks() -> Iterator[bytes]:
        nonlocal taken
        content = b"id\nu1\n" + beginning + b"x" * 10_000_000 + b"\nu2\n"
        for piece in pieces(content, range(chunk_bytes, len(content), chunk_bytes)):
            taken += len(piece)
            yield piece

    assert told(chunks()) == f"the file has {what}, in line 3"
    assert taken <= MAX_RECORD_BYTES + 2 * chunk_bytes


def test_of_two_lines_that_are_too_long_the_first_is_told() -> None:
    content = b"id\n" + b"x" * 12 + b"\n" + b"y" * 14 + b"\n"
    assert told([content], RowReader(record_bytes=10)) == "the file has a line longer than 10 bytes, in line 2"


def test_the_longest_id_that_is_allowed() -> None:
    assert read([b"id\n" + b"x" * 1_024 + b"\n"]) == [(b"x" * 1_024, 3, 1_028)]
    assert read([b"id,a\n" + b"x" * 1_024 + b",b\n"]) == [(b"x" * 1_024, 5, 1_032)]


def test_the_longest_line_that_is_allowed() -> None:
    longest = b"u1," + b"x" * (MAX_RECORD_BYTES - 4) + b"\n"
    assert read(pieces(b"id,a\n" + longest, range(0, 2_000_000, 100_000))) == [(b"u1", 5, 5 + MAX_RECORD_BYTES)]
    assert "a line longer" in told([b"id,a\n" + b"x" + longest])


@pytest.mark.alone
@pytest.mark.parametrize("quote", ["", '"'])
def test_memory_is_bounded_by_the_chunk(quote: str) -> None:
    chunk = "".join(f"{quote}user-{number:010}{quote}\n" for number in range(15_000)).encode()
    reader = RowReader()
    reader.feed(b"id\n")
    tracemalloc.start()
    try:
        rows = sum(len(reader.feed(chunk).ids) for _ in range(20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == 300_000
    assert peak < 12 * len(chunk)
