"""Findings, as people read them, and as programs do. Words of servers are shown in printable characters: the others as
escape sequences, which no terminal obeys."""

import json
import sys
from collections.abc import Sequence
from itertools import groupby
from textwrap import fill

import click
import msgspec

from services.commands.doctor.examination import Examination
from services.commands.doctor.findings import Finding, Level

WIDTH = 120
NOT_PASTED = "(no command to paste: a name in it is not printable)"
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "red"}
_LEVEL_WIDTH = max(map(len, Level))
_CHECK_WIDTH = 14
_INDENT = 2 + _LEVEL_WIDTH + 2 + _CHECK_WIDTH + 1


def as_json(finding: Finding) -> str:
    """One line. Characters in it that are not printable are escaped, as JSON allows it."""
    text = msgspec.json.encode(finding).decode()
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


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
    return f"{click.style(of, bold=True)}{click.style(f'  {_visible(where)}', dim=True) if where else ''}"


def _line(finding: Finding) -> str:
    level = click.style(f"{finding.level:<{_LEVEL_WIDTH}}", fg=_COLOURS[finding.level])
    # Only spaces are ever put in: a remedy stays what can be pasted.
    indent = " " * _INDENT
    said = _visible(finding.sentence.replace("\n", " "))
    sentence = fill(said, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False)
    line = f"  {level}  {finding.check:<{_CHECK_WIDTH}} {sentence.lstrip()}"
    return f"{line}\n{indent}{_remedy(finding.remedy)}" if finding.remedy else line


def _remedy(remedy: str) -> str:
    """The remedy, if it can be pasted: a name that is shown by escape sequences would be another one."""
    return click.style(remedy, bold=True) if remedy.isprintable() else NOT_PASTED


def _visible(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
