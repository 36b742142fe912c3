"""Questions to servers, their answers, and the report of `carillon doctor`."""

import asyncio
import json
import os
import shlex
import socket
from collections.abc import Callable, Coroutine, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from textwrap import fill
from typing import Any
from urllib.parse import unquote, urlsplit

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services.wiring.servers import Servers
from shared.core.errors import CarillonError, Denied, Unavailable
from shared.runtime.private import without_secrets
from shared.runtime.settings import Settings

INIT = "carillon init"


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


class Finding(Struct, frozen=True):
    """An answer to the question `check` of the subject `of`. `remedy` is a command to type; the reader fills in its
    <angle brackets>."""

    level: Level
    of: str
    check: str
    sentence: str
    remedy: str


Answer = Sequence[Finding]
"""The findings of one question, which it makes by `well`, `warn` and `fault`."""


def well(sentence: str) -> Answer:
    """All is as it should be."""
    return (Finding(Level.OK, "", "", sentence, ""),)


def warn(sentence: str, remedy: str = "") -> Answer:
    """It works, and an operator should look at it."""
    return (Finding(Level.WARNING, "", "", sentence, remedy),)


def fault(sentence: str, remedy: str = "") -> Answer:
    """It does not work, or a promise is not kept."""
    return (Finding(Level.FAULT, "", "", sentence, remedy),)


def name_some(names: Sequence[str], most: int = 5) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def command(*words: str) -> str:
    return shlex.join(words)


def export(setting: str, value: str) -> str:
    """The command that gives a setting, such as `stream.url`, another value."""
    return f"export CARILLON_{setting.replace('.', '_').upper()}={shlex.quote(value)}"


ANSWER_SECONDS = 5.0
ALL_SECONDS = 8.0
_CONNECT_SECONDS = 2.0
LOGIN = "login"
"""The question that decides whether a server is asked further."""


class Given(Struct, frozen=True):
    """The deployment to examine: connections by its settings, and the queues of its tasks."""

    servers: Servers
    queues: Sequence[str]

    @property
    def settings(self) -> Settings:
        return self.servers.settings


class Question(Struct, frozen=True):
    """A question. Its text in docs/doctor.md is the docstring of `ask`. It is asked if the servers that it `needs` let
    us in; one that is `last`, after all logins."""

    name: str
    ask: Callable[[Given], Coroutine[Any, Any, Answer]]
    needs: tuple[str, ...] = ()
    last: bool = False


class Subject(Struct, frozen=True):
    """A server, or another subject of questions. `place` says where it is, without secrets; `None`: not in use."""

    name: str
    questions: tuple[Question, ...]
    place: Callable[[Settings], str | None] = lambda _: ""


def without_login(url: str) -> str:
    """The URL without user, password and options."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def address_of(url: str, port: int) -> tuple[str, int]:
    """The host and the port of a URL; `port` if it names none."""
    parts = urlsplit(url)
    return parts.hostname or "localhost", parts.port or port


async def reach(*addresses: tuple[str, int]) -> Answer:
    """Connect to each address. A warning names those that refuse; raises `Unavailable` if all do."""
    reasons = await asyncio.gather(*(_connect(host, port) for host, port in addresses))
    refused = [
        f"{show_address(*address)}: {reason}" for address, reason in zip(addresses, reasons, strict=True) if reason
    ]
    if refused and all(reasons):
        raise Unavailable("; ".join(refused))
    return warn("; ".join(refused)) if refused else ()


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def _connect(host: str, port: int) -> str:
    """Why the address cannot be connected to; empty if it can."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _CONNECT_SECONDS)
    except socket.gaierror as error:
        return f"the name cannot be resolved ({error.strerror})"
    except TimeoutError:
        return f"no connection within {_CONNECT_SECONDS:.0f} s"
    except OSError as error:
        return os.strerror(error.errno).lower() if error.errno else str(error)
    writer.close()
    return ""


async def ask_all(subjects: Sequence[Subject], given: Given) -> list[Finding]:
    """The findings, in the order of the subjects and their questions."""
    deadline = asyncio.get_running_loop().time() + ALL_SECONDS
    asked = [(subject.name, question) for subject in subjects for question in subject.questions]
    logins = {
        of: asyncio.create_task(_answer(question.ask(given), deadline))
        for of, question in asked
        if question.name == LOGIN
    }

    async def ask(of: str, question: Question) -> Answer:
        if question.name == LOGIN:
            return await logins[of]
        if question.last:
            await asyncio.wait(logins.values())
        for server in {of, *question.needs} & logins.keys():
            if any(finding.level is Level.FAULT for finding in await logins[server]):
                return ()
        return await _answer(question.ask(given), deadline)

    answers = await asyncio.gather(*(ask(of, question) for of, question in asked))
    return [
        replace(finding, of=of, check=question.name)
        for (of, question), answer in zip(asked, answers, strict=True)
        for finding in answer
    ]


async def _answer(asking: Coroutine[Any, Any, Answer], deadline: float) -> Answer:
    seconds = max(0.0, min(ANSWER_SECONDS, deadline - asyncio.get_running_loop().time()))
    task = asyncio.create_task(asking)
    # Not `timeout`: a driver may swallow its cancellation, and must not hold up the doctor.
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        task.cancel()
        return fault(f"no answer within {seconds:.0f} s")
    try:
        return task.result()
    except Denied as error:
        return fault(f"access is denied: {error}")
    except (CarillonError, OSError) as error:
        return fault(str(error) or type(error).__name__)
    except Exception as error:  # noqa: BLE001 - one question that fails must not silence the others
        return fault(f"the question itself failed, which is a fault of Carillon's: {error!r}")


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
    places = {subject.name: subject.place(settings) or "" for subject in subjects}
    blocks = []
    for of, group in groupby(findings, lambda finding: finding.of):
        place = click.style(f"  {_escape(places[of])}", dim=True) if places.get(of) else ""
        blocks.append("\n".join([click.style(of, bold=True) + place, *map(_line, group)]))
    ok, warnings, faults = (sum(finding.level is level for finding in findings) for level in Level)
    said = f"{ok} ok, {warnings} warning{'' if warnings == 1 else 's'}, {faults} fault{'' if faults == 1 else 's'}"
    worst = Level.FAULT if faults else Level.WARNING if warnings else Level.OK
    return "\n\n".join([*blocks, f"{click.style(said, fg=_COLOURS[worst], bold=True)}, in {seconds:.1f} s."])


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
