"""CSV files as people and programs write them, in pieces, and what Python's csv module reads in them."""

import csv
import io
from collections.abc import Iterable, Iterator
from itertools import pairwise

from hypothesis import strategies as st

from shared.audience.rules.columns import strip_unseen

MARK = b"\xef\xbb\xbf"
LINE_ENDS = ("\n", "\r\n", "\r")
# Everything that str.splitlines would split at is among them.
SPECIAL = '",\n\r \t\v\f\x1c\x1d\x1e\x85\u2028\u2029\ufeffaé日😀'

fields = st.text(st.sampled_from(SPECIAL), max_size=6)


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file as somebody may write it: quotes where they must be and elsewhere, any line ends, blank lines."""
    columns = draw(st.integers(1, 3))
    ends = draw(st.sampled_from([(end,) for end in LINE_ENDS] + [LINE_ENDS]))
    lines = []
    for record in draw(st.lists(st.lists(fields, min_size=columns, max_size=columns), min_size=1, max_size=8)):
        lines.append(",".join(quoted(value) if draw(st.booleans()) else bare(value) for value in record))
        lines.extend(draw(st.sampled_from(ends)) for _ in range(draw(st.integers(1, 3))))
    return "".join(lines if draw(st.booleans()) else lines[:-1])


def bare(value: str) -> str:
    return quoted(value) if set(value) & set('",\r\n') else value


def quoted(value: str) -> str:
    doubled = value.replace('"', '""')
    return f'"{doubled}"'


def oracle(text: str) -> list[str]:
    records = list(csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True))
    return [strip_unseen(record[0]) for record in records if record][1:]


def columns_of(text: str) -> int:
    records = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    return max(map(len, records), default=0)


def is_empty(text: str) -> bool:
    return not text.removeprefix("\ufeff").strip("\r\n")


def pieces(content: bytes, at: Iterable[int]) -> Iterator[bytes]:
    bounds = sorted({0, len(content), *(bound for bound in at if bound < len(content))})
    return (content[start:stop] for start, stop in pairwise(bounds))


def in_every_way(content: bytes) -> Iterator[list[int]]:
    """Whole, byte by byte, and in two pieces cut anywhere."""
    yield []
    yield list(range(len(content)))
    yield from ([at] for at in range(1, len(content)))
