"""The colours of the style sheet: text is read on every ground that it stands on, in light and dark."""

import re
from pathlib import Path

import pytest

from services.api.http import pages

SHEET = (Path(pages.__file__).parent / "assets/carillon.css").read_text("utf-8")
DESIGN = (Path(__file__).parents[5] / "docs/design-of-the-dashboard.md").read_text("utf-8")
GROUNDS = ("paper", "sheet", "sunk")
TONES = ("accent", "good", "busy", "wait", "bad", "idle")
READABLE, VISIBLE = 4.5, 3.0

Colours = dict[str, str]


def themes() -> dict[str, Colours]:
    """The colours of each theme."""
    pairs = re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", SHEET)
    return {"light": {name: light for name, light, _ in pairs}, "dark": {name: dark for name, _, dark in pairs}}


def luminance(colour: str) -> float:
    """How bright a colour is, from 0 to 1, as WCAG 2 has it."""
    shares = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """From 1, for none, to 21."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def grounds_of(name: str) -> tuple[str, ...]:
    """The backgrounds of a colour of text."""
    return (*GROUNDS, f"{name}-soft") if name in TONES else GROUNDS


def least(colours: Colours, name: str) -> float:
    """The lowest contrast that a colour has on what it stands on."""
    return min(contrast(colours[name], colours[ground]) for ground in grounds_of(name))


def test_black_on_white_has_all_the_contrast_that_there_is() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_is_readable_on_all_that_it_stands_on(theme: str) -> None:
    colours = themes()[theme]
    text = ("ink", "soft", *TONES)
    assert {name: least(colours, name) for name in text if least(colours, name) < READABLE} == {}
    assert contrast(colours["on-accent"], colours["accent"]) >= READABLE
    assert contrast(colours["sheet"], colours["bad"]) >= READABLE
    assert all(contrast(colours["focus"], colours[ground]) >= VISIBLE for ground in GROUNDS)


@pytest.mark.parametrize("name", ["ink", "soft", *TONES])
def test_the_design_tells_the_contrast(name: str) -> None:
    light, dark = (least(themes()[theme], name) for theme in ("light", "dark"))
    assert re.search(rf"^\| `{name}` \|.*\| {light:.1f} \| {dark:.1f} \|$", DESIGN, re.MULTILINE), (light, dark)
