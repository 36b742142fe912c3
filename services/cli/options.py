"""Options and arguments that several verbs have, and what they are read into."""

import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from services.cli.output.times import read_given, read_past, read_span

Decorate = Callable[[Callable[..., Any]], Callable[..., Any]]

limit = click.option("--limit", type=click.IntRange(0), metavar="N", help="Maximum rows (default 100; 0 = all).")
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
        except ValueError:
            self.fail(f"{value!r} is not a time: use 2030-12-24T14:00Z, '2030-12-24 14:00' or +10m", param, ctx)


class Start(Instant):
    """An instant, or a time without a zone: it is the verb that knows whose clocks show it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return datetime.fromisoformat(value)
        except (TypeError, ValueError):
            return super().convert(value, param, ctx)


class Past(click.ParamType[datetime]):
    """An instant that is past: RFC 3339, a date or a time in the reader's zone, or `2h` for two hours ago."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return read_past(value, datetime.now(UTC))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time: use 2h (ago), 2025-12-24 or '2025-12-24 14:00'", param, ctx)


class SequenceOrPast(click.ParamType[str]):
    """The sequence of a delivery, or an instant that is past, as the API takes them."""

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
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    """`NAME=VALUE`."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not (name and equals):
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return name, text


class JsonText(click.ParamType[Any]):
    """JSON, or `@FILE` for what stands in a file (`@-`: what comes on stdin)."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return msgspec.json.decode(_read(value[1:]) if value.startswith("@") else value)
        except OSError as error:
            self.fail(f"{value[1:]} cannot be read: {error.strerror}", param, ctx)
        except msgspec.DecodeError as error:
            self.fail(f"not valid JSON: {error}", param, ctx)


class SecretText(JsonText):
    """`@FILE` alone: what stands in a command is kept by the shell, and shown to whoever lists processes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and not value.startswith("@"):
            self.fail("a secret must come from a file or from stdin: @FILE or @-", param, ctx)
        return super().convert(value, param, ctx)


def read_documents(path: str) -> Sequence[Any]:
    """The JSON documents of a file (`-`: stdin): one, an array of them, or one a line.

    Raises:
        UsageError: there is none, or they are no JSON.
    """
    try:
        content = _read(path)
        whole = _decode_whole(content)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{path} is not valid JSON: {error}") from None
    return whole if isinstance(whole, list) else [whole]


def read_lines(path: str) -> Sequence[str]:
    """The lines of a text (`-`: stdin) that are not blank. Raises `UsageError` where it cannot be read."""
    try:
        content = _read(path).decode()
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{path} is not text in UTF-8") from None
    return [line.strip() for line in content.splitlines() if line.strip()]


def _decode_whole(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.DecodeError:
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        return [msgspec.json.decode(line) for line in lines]


def _read(path: str) -> bytes:
    content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    return content.removeprefix(BOM_UTF8)
