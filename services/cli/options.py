"""Options and arguments of several verbs, and their types."""

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from services.cli.output import read_given, read_local, read_past, read_span
from shared.core.plain_words import HANDED_ON, Paths, decode_but, find_json_fault, read_typed_number

Decorate = Callable[[Callable[..., Any]], Callable[..., Any]]


def join(*options: Decorate) -> Decorate:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


class Count(click.IntRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(_read_number(value, whole=True), param, ctx)
        except (click.BadParameter, ValueError):
            hint = "" if str(value).removeprefix("-").isdecimal() else ": write digits only"
            self.fail(f"{value!r} is not a whole number{_bounds(self)}{hint}", param, ctx)


class Number(click.FloatRange):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(_read_number(value), param, ctx)
        except (click.BadParameter, ValueError):
            self.fail(f"{value!r} is not a number{_bounds(self)}: write it like 0.05", param, ctx)


def _read_number(value: Any, *, whole: bool = False) -> Any:
    # A word of the shell has no groups of digits.
    if not isinstance(value, str):
        return value
    if "," in value:
        raise ValueError
    return read_typed_number(value, whole=whole)


def _bounds(range: click.IntRange | click.FloatRange) -> str:
    least = "" if range.min is None else f" {'above' if range.min_open else 'of at least'} {range.min:,}"
    return least if range.max is None else f"{least} and {'less than' if range.max_open else 'at most'} {range.max:,}"


limit = click.option("--limit", type=Count(0), metavar="N", help="Maximum rows (default 100; 0 = all).")
namespace = click.option(
    "--namespace",
    default="",
    metavar="NAMESPACE",
    help="Namespace: `token:<id>` or `user:<e-mail address>` (default: yours).",
)


class Instant(click.ParamType[datetime]):
    """An instant: RFC 3339, a time in the reader's zone, or `+10m`."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return read_given(value, datetime.now(UTC))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time: use 2030-12-24T14:00Z, '2030-12-24 14:00' or +10m", param, ctx)


class Start(Instant):
    """An instant, or a time without a zone: the verb knows its zone."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            start = datetime.fromisoformat(value)
            read_local(start)
            return start
        except (TypeError, ValueError, OverflowError):
            return super().convert(value, param, ctx)


class Past(click.ParamType[datetime]):
    """A past instant: RFC 3339, a date or a time in the reader's zone, `today`, `yesterday`, or `2h` for two hours
    ago."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return read_past(value, datetime.now(UTC))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time: use 2h (ago), yesterday, 2025-12-24 or '2025-12-24 14:00'", param, ctx)


class SequenceOrPast(click.ParamType[str]):
    """The sequence of a delivery, or a past instant, as in the API."""

    name = "sequence or instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return value
        return Past().convert(value, param, ctx).isoformat()


class Span(click.ParamType[timedelta]):
    """A duration: `90s`, `10m`, `2h`, `7d`."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return read_span(value)
        except (ValueError, OverflowError) as error:
            self.fail(str(error), param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not (name and equals):
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


def pairs(*names: str, **how: Any) -> Decorate:
    """An option of `NAME=VALUE` that may be given several times, but once for each name, because only the last value
    would count."""
    return click.option(*names, type=Pair(), multiple=True, callback=_refuse_repeated_names, **how)


def _refuse_repeated_names(
    _ctx: click.Context, _param: click.Parameter, value: Sequence[tuple[str, str]]
) -> Sequence[tuple[str, str]]:
    names = [name for name, _ in value]
    if repeated := next((name for name in names if names.count(name) > 1), ""):
        raise click.BadParameter(f"{repeated!r} is given twice, and only one value can count: give each name once")
    return value


def labels(*names: str, **how: Any) -> Decorate:
    """An option of `NAME=VALUE` that may be given several times, as the API's filter of labels."""

    def join_labels(_ctx: click.Context, _param: click.Parameter, value: Sequence[tuple[str, str]]) -> str:
        return ",".join(f"{name}:{label}" for name, label in value)

    return click.option(*names, type=Pair(), multiple=True, callback=join_labels, **how)


class JsonText(click.ParamType[Any]):
    """JSON, or `@FILE` for the content of a file (`@-`: stdin)."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text = value
        try:
            text = _read(value[1:]) if value.startswith("@") else value
            return self.decode(text)
        except click.UsageError as error:
            self.fail(error.message, param, ctx)
        except msgspec.DecodeError:
            self.fail(f"this is not JSON: {find_json_fault(text)}", param, ctx)
        except RecursionError:
            self.fail("this is nested too deeply", param, ctx)

    def decode(self, text: str) -> Any:
        return decode_but(text)


class RawText(JsonText):
    """JSON that is passed on, so it stays text."""

    def decode(self, text: str) -> Any:
        return msgspec.Raw(bytes(msgspec.json.decode(text, type=msgspec.Raw)).strip())


class SecretText(JsonText):
    """Only `@FILE`: a shell stores command lines, and process lists show them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not value.startswith("@"):
            self.fail("a secret must come from a file or from stdin: @FILE or @-", param, ctx)
        return super().convert(value, param, ctx)


class SecretWord(SecretText):
    name = "secret"

    def decode(self, text: str) -> Any:
        return text.strip()


class HeaderLine(click.ParamType[tuple[str, str]]):
    name = "header"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        header, colon, text = value.partition(":")
        if not (header.strip() and colon):
            self.fail(f"{value!r} is no header: write 'Name: value'", param, ctx)
        return header.strip(), text.strip()


def read_documents(path: str, paths: Paths = HANDED_ON) -> Sequence[Any]:
    """The JSON documents of a file (`-`: stdin): one, an array of them, or one a line. The parts at these paths stay
    text (`decode_but`)."""
    text = _read(path)
    try:
        whole = decode_but(text, paths)
    except msgspec.DecodeError:
        return _read_each_line(path, text, paths)
    except RecursionError:
        raise click.UsageError(f"{path} is nested too deeply") from None
    return whole if isinstance(whole, list) else [whole]


def read_lines(path: str) -> Sequence[str]:
    """The non-blank lines of a file (`-`: stdin). Raises `UsageError` if it cannot be read."""
    return [line.strip() for line in _read(path).splitlines() if line.strip()]


def _read_each_line(path: str, text: str, paths: Paths) -> Sequence[Any]:
    documents: list[Any] = []
    for number, line in enumerate(text.split("\n")):
        try:
            documents += [decode_but(line, paths)] if line.strip() else []
        except msgspec.DecodeError:
            # If the first line is no document, the file was meant to be one.
            fault = find_json_fault("\n" * number + line if documents else text)
            raise click.UsageError(f"{path} is not JSON: {fault}") from None
    if not documents:
        raise click.UsageError(f"{path} is empty")
    return documents


def _read(path: str) -> str:
    """A file (`-`: stdin) as text. Raises `UsageError` if it cannot be read."""
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return content.removeprefix(BOM_UTF8).decode()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is not text in UTF-8") from None
