"""What was found, as people read it, and as programs do."""

import sys
from collections.abc import Sequence
from itertools import groupby
from textwrap import fill

import click
import msgspec

from services.commands.doctor.examination import Examination
from services.commands.doctor.findings import Finding, Level

WIDTH = 120
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "red"}
_LEVEL_WIDTH = max(map(len, Level))
_CHECK_WIDTH = 14
_INDENT = 2 + _LEVEL_WIDTH + 2 + _CHECK_WIDTH + 1


def as_json(finding: Finding) -> str:
    """One line."""
    return msgspec.json.encode(finding).decode()


def as_list(findings: Sequence[Finding], examinations: Sequence[Examination], seconds: float) -> str:
    """All of them by server, and their sum. The colours are for a terminal alone: `show` takes them out elsewhere."""
    where = {examination.of: examination.where for examination in examinations}
    blocks = [
        "\n".join([_head(of, where.get(of, "")), *map(_line, group)])
        for of, group in groupby(findings, lambda finding: finding.of)
    ]
    return "\n\n".join([*blocks, sum_up(findings, seconds)])


def show(text: str, *, colour: bool) -> None:
    """Print it, with its colours or without."""
    click.echo(text if colour else click.unstyle(text), color=colour)
    sys.stdout.flush()


def sum_up(findings: Sequence[Finding], seconds: float) -> str:
    """How many of each, in one line."""
    count = {level: sum(finding.level is level for finding in findings) for level in Level}
    said = f"{count[Level.OK]} ok, {_number(count[Level.WARNING], 'warning')}, {_number(count[Level.FAULT], 'fault')}"
    worst = next(level for level in (Level.FAULT, Level.WARNING, Level.OK) if count[level] or level is Level.OK)
    return f"{click.style(said, fg=_COLOURS[worst], bold=True)}, in {seconds:.1f} s."


def _number(count: int, of: str) -> str:
    return f"{count} {of}" if count == 1 else f"{count} {of}s"


def _head(of: str, where: str) -> str:
    return f"{click.style(of, bold=True)}{click.style(f'  {where}', dim=True) if where else ''}"


def _line(finding: Finding) -> str:
    level = click.style(f"{finding.level:<{_LEVEL_WIDTH}}", fg=_COLOURS[finding.level])
    # Only spaces are ever put in: a remedy stays what can be pasted.
    indent = " " * _INDENT
    sentence = fill(finding.sentence, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    line = f"  {level}  {finding.check:<{_CHECK_WIDTH}} {sentence.lstrip()}"
    return f"{line}\n{indent}{click.style(finding.remedy, bold=True)}" if finding.remedy else line
