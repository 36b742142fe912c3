"""Charts as SVG, drawn on the server: they need no script, and print.

Colours are classes, which the style sheet fills: the content security policy allows no styles in a page. Each picture
says in words what it shows, for those who do not see it.
"""

from collections.abc import Sequence

from markupsafe import Markup, escape
from msgspec import Struct

WIDTH = 1_000
_TICKS = 4
_BLOCK, _LANE = 8.0, 36


class Piece(Struct, frozen=True):
    """A part of a whole: what it is called, how large it is, and the class of its colour."""

    label: str
    size: float
    tone: str


class Mark(Struct, frozen=True):
    """A moment on a time axis, as a share of its length from 0 to 1, with a word."""

    at: float
    label: str
    tone: str = "mark"


class StripBlock(Struct, frozen=True):
    """A block that begins at a moment of a day, as a share of its length from 0 to 1; `share` of the block is done.
    Blocks in different lanes do not cover each other."""

    at: float
    share: float
    tone: str
    label: str
    lane: int = 0


def stacked_bar(parts: Sequence[Piece], *, whole: float | None = None, says: str = "") -> Markup:
    """One bar of all parts, each with its share of `whole`, by default of their sum."""
    total = max(whole or 0, sum(part.size for part in parts)) or 1
    words = says or ", ".join(f"{part.label} {part.size:,.0f}" for part in parts)
    drawn, begin = [], 0.0
    for part in parts:
        width = WIDTH * part.size / total
        if part.size and width:
            # Even the smallest part is visible.
            shown = max(width, 2.0)
            drawn.append(_rect(begin, 0, min(shown, WIDTH - begin), 20, part.tone, f"{part.label}: {part.size:,.0f}"))
            begin += width
    return _svg("".join(drawn), height=20, words=words, kind="stack")


def area(
    values: Sequence[float], *, says: str, tone: str = "busy", height: int = 120, marks: Sequence[Mark] = ()
) -> Markup:
    """Values at even distances as an area over zero, with the highest value beside it."""
    top = nice_top(max(values, default=0))
    step = WIDTH / max(1, len(values) - 1)
    points = [(index * step, height - height * value / top) for index, value in enumerate(values)]
    if len(points) == 1:
        points.append((WIDTH, points[0][1]))
    drawn = _grid(height)
    if points:
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        drawn += f'<polygon class="fill {escape(tone)}" points="0,{height} {line} {WIDTH},{height}"/>'
        drawn += f'<polyline class="line {escape(tone)}" points="{line}"/>'
    for mark in marks:
        drawn += _mark(mark, height)
    return _svg(drawn, height=height, words=says, kind="area")


def columns(values: Sequence[Piece], *, says: str, height: int = 120) -> Markup:
    top = nice_top(max((value.size for value in values), default=0))
    width = WIDTH / max(1, len(values))
    drawn = _grid(height)
    for index, value in enumerate(values):
        tall = height * value.size / top
        if value.size:
            tall = max(tall, 1.5)
        words = f"{value.label}: {value.size:,.0f}"
        drawn += _rect(index * width + width * 0.08, height - tall, width * 0.84, tall, value.tone, words)
    return _svg(drawn, height=height, words=says, kind="columns")


def day_strip(blocks: Sequence[StripBlock], *, says: str, now: float, ticks: int = 4) -> Markup:
    """A day from left to right, with a block at the begin of each thing, and a line for now. A block is pale, and
    filled from below by the finished share."""
    height = (_LANE + 2) * (1 + max((block.lane for block in blocks), default=0))
    drawn = "".join(
        f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>'
        for x in (WIDTH * tick / ticks for tick in range(1, ticks))
    )
    for block in blocks:
        x, y = min(max(0.0, WIDTH * block.at), WIDTH - _BLOCK), (_LANE + 2) * block.lane
        tall = _LANE * min(1.0, block.share)
        drawn += _rect(x, y, _BLOCK, _LANE, f"pale {block.tone}", block.label)
        if tall:
            drawn += _rect(x, y + _LANE - tall, _BLOCK, tall, block.tone, block.label)
    if 0 <= now <= 1:
        drawn += _mark(Mark(now, "now"), height)
    return _svg(drawn, height=height, words=says, kind="strip")


def nice_top(value: float) -> float:
    """The next round number from this one: 1, 2, 2.5 or 5 times a power of ten; 1 for zero."""
    if value <= 0:
        return 1
    power = 10.0 ** len(str(int(value)))
    while power / 10 >= value:
        power /= 10
    return next(step * power / 10 for step in (1, 2, 2.5, 5, 10) if step * power / 10 >= value)


def _grid(height: int) -> str:
    lines = (height * tick / _TICKS for tick in range(1, _TICKS))
    return "".join(f'<line class="grid" x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>' for y in lines)


def _mark(mark: Mark, height: int) -> str:
    x = WIDTH * min(1.0, max(0.0, mark.at))
    line = f'<line class="{escape(mark.tone)}" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}">'
    return f"{line}<title>{escape(mark.label)}</title></line>"


def _rect(x: float, y: float, width: float, height: float, tone: str, words: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{escape(tone)}" {place}><title>{escape(words)}</title></rect>'


def _svg(drawn: str, *, height: int, words: str, kind: str) -> Markup:
    return Markup(  # noqa: S704 - every text in it is escaped where it is put in
        f'<svg class="picture {kind}" viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(words)}">{drawn}</svg>'
    )
