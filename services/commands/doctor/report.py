"""Findings as people and programs read them: without secrets, and in printable characters alone."""

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import fill
from urllib.parse import unquote, urlsplit

import click
import msgspec
from msgspec.structs import replace

from services.commands.doctor.answers import Finding, Level
from services.commands.doctor.questions import Subject
from shared.runtime.masking import without_secrets
from shared.runtime.settings import Settings

WIDTH = 120
NOT_PASTED = "(no command to paste: a name in it is not printable)"
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAULT: "red"}
_LEVEL_WIDTH = max(map(len, Level))
_CHECK_WIDTH = 14
_INDENT = " " * (2 + _LEVEL_WIDTH + 2 + _CHECK_WIDTH + 1)
# Shorter secrets are words: masking them would make sentences unreadable, and hide nothing.
_LEAST_SECRET = 6
_KNOWN_BY_ALL = {"carillon", "postgres", "minioadmin"}


def mask_secrets(findings: Sequence[Finding], settings: Settings) -> list[Finding]:
    """The findings without the secrets of the settings, which errors of drivers may repeat."""
    secrets = sorted((text for text in _secrets_of(settings) if len(text) >= _LEAST_SECRET), key=len, reverse=True)

    def mask(text: str) -> str:
        for secret in secrets:
            text = text.replace(secret, "***")
        return without_secrets(text)

    return [replace(finding, sentence=mask(finding.sentence), remedy=mask(finding.remedy)) for finding in findings]


def as_json(finding: Finding) -> str:
    """One line. JSON allows escapes for characters that are not printable."""
    text = msgspec.json.encode(finding).decode()
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def as_list(findings: Sequence[Finding], subjects: Sequence[Subject], settings: Settings, seconds: float) -> str:
    """All findings by subject, and their sum."""
    places = {subject.name: subject.place(settings) or "" for subject in subjects}
    blocks = [
        "\n".join([_head(of, places.get(of, "")), *map(_line, group)])
        for of, group in groupby(findings, lambda finding: finding.of)
    ]
    return "\n\n".join([*blocks, _sum_up(findings, seconds)])


def show(text: str, *, colour: bool) -> None:
    """Print the text, with its colours or without."""
    click.echo(text if colour else click.unstyle(text), color=colour)
    sys.stdout.flush()


def _sum_up(findings: Sequence[Finding], seconds: float) -> str:
    ok, warnings, faults = (sum(finding.level is level for finding in findings) for level in Level)
    said = f"{ok} ok, {warnings} warning{'' if warnings == 1 else 's'}, {faults} fault{'' if faults == 1 else 's'}"
    worst = Level.FAULT if faults else Level.WARNING if warnings else Level.OK
    return f"{click.style(said, fg=_COLOURS[worst], bold=True)}, in {seconds:.1f} s."


def _head(of: str, place: str) -> str:
    return click.style(of, bold=True) + (click.style(f"  {_escape(place)}", dim=True) if place else "")


def _line(finding: Finding) -> str:
    level = click.style(f"{finding.level:<{_LEVEL_WIDTH}}", fg=_COLOURS[finding.level])
    said = _escape(finding.sentence.replace("\n", " "))
    sentence = fill(said, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_long_words=False)
    line = f"  {level}  {finding.check:<{_CHECK_WIDTH}} {sentence.lstrip()}"
    if not finding.remedy:
        return line
    # A name that is shown by escapes would be another name for the shell.
    remedy = click.style(finding.remedy, bold=True) if finding.remedy.isprintable() else NOT_PASTED
    return f"{line}\n{_INDENT}{remedy}"


def _escape(text: str) -> str:
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _secrets_of(settings: Settings) -> Iterator[str]:
    for section in (settings.store, settings.broker, settings.stream, settings.audience, settings.blobs, settings.mail):
        for name in section.__struct_fields__:
            value = getattr(section, name)
            if name.endswith("url") and isinstance(value, str) and (password := urlsplit(value).password):
                yield from {password, unquote(password)} - _KNOWN_BY_ALL
    yield from {settings.blobs.secret_key} - _KNOWN_BY_ALL
    yield from (settings.api.proxy_secret, settings.callbacks.signing_secret, settings.bus.root_key)
    yield from settings.providers.secret_keys.replace(",", " ").split()
