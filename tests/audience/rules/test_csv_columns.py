"""Columns that are chosen by their names are those of Python's csv module; a bad header is refused where it is bad."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.audience.rules.audiences import ByteRange
from shared.audience.rules.columns import MAX_COLUMNS, Chosen, Header, choose, column_name, strip_unseen
from shared.audience.rules.csv_cuts import Cutter, rows_in
from shared.audience.rules.csv_rows import RowReader, Rows, merge_rows
from shared.audience.rules.repeats import Repeats
from shared.core.errors import Invalid
from tests.audience.rules.csv_files import LINE_ENDS, MARK, bare, fields, in_every_way, pieces, quoted

NAMES = ("Recipient", " NAME", "c\u200bode\t", "É")


def by_name(ids: str, *used: str) -> Callable[[Header], Chosen]:
    return lambda header: choose(header, ids, used)


def read(chunks: Iterable[bytes], reader: RowReader) -> Rows:
    *first, last = [*(reader.feed(chunk) for chunk in chunks), reader.finish()]
    rows = last
    for one in reversed(first):
        rows = merge_rows(one, rows)
    return rows


def told(content: bytes, at: Iterable[int] = (), *, ids: str = "recipient") -> str:
    with pytest.raises(Invalid) as refused:
        read(pieces(content, at), RowReader(choose=by_name(ids)))
    assert refused.value.field == "csvPath"
    return refused.value.reason


@st.composite
def tables(draw: st.DrawFn) -> str:
    """A file with named columns."""
    columns = draw(st.integers(1, 4))
    written = [quoted if draw(st.booleans()) else bare for _ in range(columns)]
    row = st.lists(fields, min_size=columns, max_size=columns)
    rows = draw(st.lists(row, max_size=6))
    end = draw(st.sampled_from(LINE_ENDS))
    records = [NAMES[:columns], *rows]
    lines = [",".join(write(value) for write, value in zip(written, record, strict=True)) for record in records]
    return (end * draw(st.integers(1, 2))).join(lines) + draw(st.sampled_from(["", end]))


def oracle(text: str, *, skip_empty: bool = True) -> tuple[list[str], list[list[str]]]:
    """The names and rows, without rows of empty values, which only a reader of named columns skips."""
    names, *rows = [
        row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if (any(row) if skip_empty else row)
    ]
    return [column_name(name) for name in names], rows


def as_texts(columns: Sequence[Sequence[bytes]]) -> list[list[str]]:
    return [[value.decode() for value in column] for column in columns]


@given(text=tables(), mark=st.booleans(), at=st.lists(st.integers(1, 100)), data=st.data())
def test_chosen_columns_are_those_of_the_csv_module(text: str, mark: bool, at: list[int], data: st.DataObject) -> None:
    names, rows = oracle(text)
    used = data.draw(st.sets(st.sampled_from([*names, "unknown"])))
    content = mark * MARK + text.encode()
    reader = RowReader(choose=by_name("recipient", *used))
    found = read(pieces(content, at), reader)
    assert reader.header is not None
    assert list(reader.header.names) == names
    wanted = [0, *(place for place, name in enumerate(names) if name in used)]
    expected = [[row[place] for row in rows] for place in wanted]
    assert as_texts([found.ids, *found.others]) == expected or not (rows or found.ids)
    behind = content[reader.header.size :]
    assert as_texts([read([behind], RowReader(start=reader.header.size, columns=len(names))).ids]) == [
        [strip_unseen(row[0]) for row in oracle(text, skip_empty=False)[1]]
    ]


@given(text=tables(), size=st.integers(1, 3))
def test_a_cut_is_read_alone_by_the_header_that_was_kept(text: str, size: int) -> None:
    names, rows = oracle(text)
    content = text.encode()
    reader, cutter = RowReader(choose=by_name("recipient", *names)), Cutter(size, Repeats())
    cuts = [*cutter.add(reader.feed(content)), *cutter.add(reader.finish()), *cutter.finish()]
    header = reader.header
    assert header is not None
    first = 0
    seen: set[str] = set()
    for cut in cuts:
        theirs = rows[first : first + cut.rows]
        found = rows_in(cut, content[cut.start : cut.end], header, choose(header, "recipient", names))
        fresh = [at for at, row in enumerate(theirs) if not (row[0] in seen or seen.add(row[0]))]  # type: ignore[func-returns-value]
        assert found.numbers == fresh
        assert [id.decode() for id in found.ids] == [theirs[at][0] for at in fresh]
        assert as_texts(found.others) == [[theirs[at][place] for at in fresh] for place in range(len(names))]
        first += cut.rows
    assert first == len(rows)


def test_a_name_of_the_header_may_be_written_in_any_case() -> None:
    content = MARK + b'"na""me",RECIPIENT \nAnn,a1\n"B,ob","a""2"\n'
    for at in in_every_way(content):
        reader = RowReader(choose=by_name("recipient", 'na"me'))
        rows = read(pieces(content, at), reader)
        assert reader.header == Header(('na"me', "recipient"), 23)
        assert (rows.ids, rows.others) == ([b"a1", b'a"2'], ([b"Ann", b"B,ob"],))


def test_columns_without_names_are_ignored() -> None:
    content = b"recipient,name,, \nu1,Ann,,\nu2,Bob,x,\n"
    for at in in_every_way(content):
        reader = RowReader(choose=by_name("recipient", "name"))
        rows = read(pieces(content, at), reader)
        assert reader.header == Header(("recipient", "name", "", ""), 18)
        assert (rows.ids, rows.others) == ([b"u1", b"u2"], ([b"Ann", b"Bob"],))


def test_rows_of_commas_alone_are_skipped_like_blank_lines() -> None:
    content = b",,\nrecipient,name,\n,,\nu1,Ann,\n\n,\n,,,,\r\nu2,Bob,\n,,"
    for at in in_every_way(content):
        reader = RowReader(choose=by_name("recipient", "name"))
        rows = read(pieces(content, at), reader)
        assert reader.header == Header(("recipient", "name", ""), 19)
        assert (rows.ids, rows.others) == ([b"u1", b"u2"], ([b"Ann", b"Bob"],))
        assert [content[start:end] for start, end in zip(rows.starts, rows.ends, strict=True)] == [
            b"u1,Ann,\n", b"u2,Bob,\n",
        ]  # fmt: skip
    again = rows_in(
        ByteRange(19, len(content), 2), content[19:], Header(("recipient", "name", ""), 19), Chosen(name="r")
    )
    assert again.ids == [b"u1", b"u2"]


def test_rows_of_empty_quotes_are_skipped_too() -> None:
    content = b'"recipient","name"\n"u1","Ann"\n"",""\n"u2",""\n"",\n""\n'
    for at in in_every_way(content):
        rows = read(pieces(content, at), RowReader(choose=by_name("recipient", "name")))
        assert (rows.ids, rows.others) == ([b"u1", b"u2"], ([b"Ann", b""],))


@pytest.mark.parametrize(
    ("row", "recipient"), [(b'"",","', b""), (b'""""', b'"'), (b'"""",""', b'"'), (b'"","""",', b"")]
)
def test_rows_that_are_written_are_kept(row: bytes, recipient: bytes) -> None:
    columns = [b"recipient", b"name", b""][: row.count(b",") + (row != b'"",","')]
    content = b",".join(columns) + b"\nu1" + b"," * (len(columns) - 1) + b"\n" + row + b"\n"
    for at in in_every_way(content):
        assert read(pieces(content, at), RowReader(choose=by_name("recipient"))).ids == [b"u1", recipient]


def test_a_column_that_may_have_been_meant_is_suggested() -> None:
    assert told(b"name,recipients\nAnn,u1\n").startswith(
        'the file has no column "recipient" for its recipients; its columns are "name", "recipients"; did you mean '
        "recipients?"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            b"recipient,b,B \nu1,b,c\n",
            'columns with the name "b", in column 2 and again, in the header, column 3',
        ),
        (
            b"recipient;name\nu1;b\n",
            "the file has semicolons between its columns, where commas must be, in the header",
        ),
        (b"recipient\tname\nu1\tb\n", "the file has tabs between its columns, where commas must be, in the header"),
        (b"\r\n\r\nrecipient,x,X\nu1,b,c\n", 'with the name "x", in column 2 and again, in the header, column 3'),
        (b"a,b\nu1,b\n", 'no column "recipient" for its recipients; its columns are "a", "b", in the header'),
        (b"ana@x.com,+4917612,Ann \n", 'recipients; its columns are …, …, "ann", in the header'),
        (b"b,recipient\nb,u1\nc\n,u2\n", "fewer columns than the first line's 2, in line 3"),
        (b"b,recipient\nb,u1\nc,u1,\nd,\n", "more columns than the first line's 2, in line 3"),
        (b"b,recipient\nb," + b"x" * 1_025, 'a value in the column "recipient" longer than 1,024 bytes, in line 2'),
        (b"recipient," + b"x" * 256 + b"\nu1,b", "with more than 255 characters, in the header, column 2"),
        (b"recipient,\xff\nu1,b\n", "invalid UTF-8, in line 1"),
        (b"a\na\n\xff\n", 'no column "recipient"'),
        (b"a\na\n" + b'"', 'no column "recipient"'),
    ],
)
def test_a_bad_file_is_refused_by_line_and_column(content: bytes, reason: str) -> None:
    for at in (range(0), range(len(content)), range(7, len(content), 7)):
        assert reason in told(content, at)


def test_blank_recipients_are_rows_like_others() -> None:
    content = 'recipient,name\nu1,Ann\n,Bob\n" ",Cem\n\u200b\u00a0,Dan\n"",Eve\n'.encode()
    for at in in_every_way(content):
        rows = read(pieces(content, at), RowReader(choose=by_name("recipient", "name")))
        assert [id.decode() for id in rows.ids] == ["u1", "", " ", "\u200b\u00a0", ""]
        assert rows.others == ([b"Ann", b"Bob", b"Cem", b"Dan", b"Eve"],)


def test_columns_are_limited() -> None:
    most = [b"recipient", *(b"c%d" % number for number in range(MAX_COLUMNS - 1))]
    row = b"," * (MAX_COLUMNS - 1)
    reader = RowReader(choose=by_name("recipient", "c998"))
    rows = read([b",".join(most) + b"\nu1" + row + b"z\n"], reader)
    assert rows.others == ([b"z"],)
    longest = read([b"recipient," + b"x" * 255 + b"\nu1,b\n"], RowReader(choose=by_name("recipient", "x" * 255)))
    assert longest.others == ([b"b"],)
    assert "more than 1,000 columns, in the header, column 1001" in told(b",".join([*most, b"one"]) + b"\n")


def test_a_long_text_in_a_column_that_is_not_the_recipients_is_fine() -> None:
    rows = read([b"text,recipient\n" + b"x" * 5_000 + b",u1\n"], RowReader(choose=by_name("recipient", "text")))
    assert (rows.ids, [len(text) for text in rows.others[0]]) == ([b"u1"], [5_000])


def test_what_is_no_more_what_was_cut_is_refused() -> None:
    header, chosen = Header(("recipient", "b"), 12), Chosen(0, (1,), "recipient")
    cut = ByteRange(12, 17, 1)
    assert rows_in(cut, b"u1,b\n", header, chosen).others == ([b"b"],)
    for changed in (b"u1,b", b"u1,b\n\n", b"u,,b\n", b"u1bb\n", b",,,,\n"):
        with pytest.raises(Invalid) as refused:
            rows_in(cut, changed, header, chosen)
        assert refused.value.field == "csvPath"
