"""A reader of CSV audiences that goes byte by byte, slow and plain: what the fast one is measured by."""

from codecs import getincrementaldecoder
from dataclasses import dataclass, field
from enum import IntEnum

from shared.audience.rules.columns import strip_unseen

MARK = b"\xef\xbb\xbf"

Row = tuple[bytes, int, int]


class Code(IntEnum):
    """What has a meaning of its own."""

    NUL = 0x00
    LF = 0x0A
    CR = 0x0D
    QUOTE = 0x22
    COMMA = 0x2C


class Broken(Exception):
    """What is wrong, at which byte."""

    __match_args__ = ("what", "byte")

    def __init__(self, what: str, byte: int) -> None:
        super().__init__(what, byte)
        self.what = what
        self.byte = byte


def by_bytes(content: bytes, record_bytes: int) -> list[Row] | Broken:
    """The first columns of all records but the header, where each begins and where its line end is over."""
    at = len(MARK) if content.startswith(MARK) else 0
    records: list[Row] = []
    columns: int | None = None
    try:
        while at < len(content):
            record = Record(content, at, columns)
            at = record.read(record_bytes)
            if record.stop != record.start:
                columns = record.fields
                records.append((record.id, record.start, at))
    except Broken as broken:
        return broken
    return records[1:] if records else Broken("empty", 0)


@dataclass
class Record:
    """What begins at `start`, a blank line perhaps."""

    content: bytes
    start: int
    columns: int | None
    state: str = "start"
    fields: int = 1
    opened: int = 0
    bounds: list[int] = field(default_factory=list)
    stop: int = -1

    def read(self, record_bytes: int) -> int:
        """Gives where the next one begins."""
        decoder = getincrementaldecoder("utf-8")()
        for at, code in enumerate(self.content[self.start :] + b"\n", self.start):
            if at - self.start == record_bytes:
                quoted = self.state == "quoted"
                raise Broken("not closed within", self.opened) if quoted else Broken("line longer", self.start)
            begun = len(decoder.getstate()[0])
            try:
                decoder.decode(bytes([code]))
            except UnicodeDecodeError:
                raise Broken("UTF-8", at - begun) from None
            if self.takes_last(at, code):
                return min(at + 1, len(self.content))
        raise Broken("never closed", self.opened)

    def takes_last(self, at: int, code: int) -> bool:
        if code == Code.NUL:
            raise Broken("NUL", at)
        match self.state, code:
            case "quoted", _:
                self.state = "closed" if code == Code.QUOTE else "quoted"
            case "bare", Code.QUOTE:
                raise Broken("quote inside", at)
            case _, Code.QUOTE:
                self.opened = at if self.state == "start" else self.opened
                self.state = "quoted"
            case _, Code.COMMA:
                self.takes_comma(at)
            case _, Code.CR | Code.LF:
                self.ends(at)
                return code == Code.LF or self.content[at + 1 : at + 2] not in {b"\n", b""}
            case "closed", _:
                raise Broken("behind a closing quote", at)
            case _:
                self.state = "bare"
        return False

    def takes_comma(self, at: int) -> None:
        self.bounds.append(at)
        self.fields += 1
        self.state = "start"
        if self.columns is not None and self.fields > self.columns:
            raise Broken("more columns", self.start)

    def ends(self, at: int) -> None:
        if self.stop < 0:
            self.stop = at
            self.bounds.append(at)
            if at > self.start and self.columns is not None and self.fields < self.columns:
                raise Broken("fewer columns", self.start)

    @property
    def id(self) -> bytes:
        first = self.content[self.start : self.bounds[0]]
        held = first[1:-1].replace(b'""', b'"') if first.startswith(b'"') else first
        return strip_unseen(held.decode()).encode()


def line_of(content: bytes, byte: int) -> int:
    """The number of the line that this byte stands in."""
    before = content[:byte].replace(b"\r\n", b"\n")
    # A CR right before an LF ends no line by itself.
    halved = content[:byte].endswith(b"\r") and content[byte : byte + 1] == b"\n"
    return 1 + before.count(b"\n") + before.count(b"\r") - halved
