"""Questions to the servers, their answers, and how all of them are asked at once.

A server that is not reached or refuses the login is not asked further: its other answers would be the same. A question
waits for `ANSWER_SECONDS`, all of them together for `ALL_SECONDS`; a server that is still silent then has a fault.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from services.commands.doctor.answers import Answer, Finding, Level, fault, warn
from services.connections import Capabilities
from shared.domain.errors import CarillonError, Denied, Unavailable
from shared.runtime.settings import Settings

ANSWER_SECONDS = 5.0
ALL_SECONDS = 8.0
_CONNECT_SECONDS = 2.0

LOGIN = "login"
"""The question that decides whether a server is asked further."""


class Given(Struct, frozen=True):
    """The deployment to examine: connections by its settings, and the queues of its tasks."""

    capabilities: Capabilities
    queues: Sequence[str]

    @property
    def settings(self) -> Settings:
        return self.capabilities.settings


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
    """The address as one writes it."""
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
