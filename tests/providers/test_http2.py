"""Connections by HTTP/2, seen through the kind `apns`: what is in doubt and what is not, and how they are kept."""

import asyncio
import os
import signal
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from shared.drivers.http import Outgoing
from shared.messages.rules.answers import Answer, CallAccepted, CallUnanswered, NotNow
from shared.providers import NotCalled, Provider, ProviderRules
from shared.providers import http2_connection as connection
from shared.providers.apns import ApnsKind
from shared.providers.http2 import CONNECTIONS, trusting_context
from tests.drivers.http.receiver import scripted
from tests.providers import apns_fake
from tests.providers.fakes import FakeProcess, fake_process
from tests.providers.keys import p256_pem
from tests.providers.notes import Notes
from tests.providers.rules import Cut, Rule, StreamEnd
from tests.stack.certificates import Authority
from tests.waiting import until

DEVICE = "0123456789abcdef" * 4
FIELDS = {"teamId": apns_fake.TEAM, "keyId": apns_fake.KEY, "topic": apns_fake.TOPIC}
HELD = Rule(200, held=True)
NO_HTTP: Outgoing = None  # type: ignore[assignment]


@pytest.fixture
async def apns(fakes: Mapping[str, FakeProcess]) -> FakeProcess:
    return fakes["apns_fake"]


@asynccontextmanager
async def opened(url: str, call_seconds: float = 20.0, trust: ssl.SSLContext | None = None) -> AsyncIterator[Provider]:
    kind = ApnsKind(ProviderRules(call_seconds=call_seconds, allowed_networks=("127.0.0.1/32",)), trust=trust)
    provider = kind.open(FIELDS | {"apiUrl": url}, {"key": p256_pem()}, NO_HTTP)
    try:
        yield provider
    finally:
        await provider.close()


async def send(provider: Provider, size: int = 1) -> Answer:
    return await provider.send({"aps": {"alert": "x" * size}}, DEVICE, "m~1", lambda: True)


async def has_arrived(apns: FakeProcess, calls: int) -> None:
    async def look() -> bool:
        return len((await apns.tell()).arrived) >= calls

    await until(look, f"{calls} calls")


async def test_a_refused_stream_was_not_taken(apns: FakeProcess) -> None:
    await apns.answer(Rule(stream=StreamEnd.REFUSED))
    async with opened(apns.url) as provider:
        assert await send(provider) == NotNow("127.0.0.1 has refused the request unseen")
        assert isinstance(await send(provider), CallAccepted)
        await apns.answer(Rule(stream=StreamEnd.REFUSED))
        assert isinstance(await send(provider), CallAccepted)
        await apns.answer(always=Rule(stream=StreamEnd.REFUSED))
        assert await send(provider) == NotNow("127.0.0.1 has refused the request unseen")
    assert (await apns.tell()).counts.connections == 1


async def test_of_a_stream_that_was_broken_off_nobody_can_tell(apns: FakeProcess) -> None:
    await apns.answer(Rule(stream=StreamEnd.RESET))
    async with opened(apns.url) as provider:
        assert await send(provider) == CallUnanswered("127.0.0.1 broke the request off")
        assert isinstance(await send(provider), CallAccepted)
    assert (await apns.tell()).counts.connections == 1


async def test_a_goodbye_leaves_the_earlier_ones_to_be_answered(apns: FakeProcess) -> None:
    async with opened(apns.url) as provider:
        await send(provider)
        await apns.answer(HELD, Rule(stream=StreamEnd.GOODBYE))
        earlier = asyncio.create_task(send(provider))
        await has_arrived(apns, 2)
        assert isinstance(await send(provider), CallAccepted)
        assert not earlier.done()
        await apns.let_go()
        assert isinstance(await earlier, CallAccepted)
    told = await apns.tell()
    assert told.counts.connections == 2 and len(told.arrived) == 3


async def test_a_goodbye_to_the_first_request_is_not_now(apns: FakeProcess) -> None:
    await apns.answer(always=Rule(stream=StreamEnd.GOODBYE))
    async with opened(apns.url) as provider:
        assert await send(provider) == NotNow("127.0.0.1 says goodbye, and has not seen the request")
    assert (await apns.tell()).counts.connections == 1


async def test_behind_a_goodbye_the_sender_is_asked_again(apns: FakeProcess) -> None:
    wanted = iter([True, True, False])
    async with opened(apns.url) as provider:
        await provider.send({"aps": {}}, DEVICE, "m~1", lambda: next(wanted))
        await apns.answer(Rule(stream=StreamEnd.GOODBYE))
        with pytest.raises(NotCalled):
            await provider.send({"aps": {}}, DEVICE, "m~1", lambda: next(wanted))
    assert len((await apns.tell()).arrived) == 1


async def test_a_status_is_the_answer_whatever_comes_behind_it(apns: FakeProcess) -> None:
    await apns.answer(Rule(200, "{}", cut=Cut.BODY))
    async with opened(apns.url) as provider:
        assert isinstance(await send(provider), CallAccepted)


@pytest.mark.slow
async def test_a_call_that_ends_by_its_time_leaves_the_connection(apns: FakeProcess) -> None:
    await apns.answer(Rule(hang=True))
    async with opened(apns.url, call_seconds=3.0) as provider:
        assert await send(provider) == CallUnanswered("127.0.0.1 gave no answer within 3 s")
        assert isinstance(await send(provider), CallAccepted)
    assert (await apns.tell()).counts.connections == 1


async def test_one_that_is_cancelled_leaves_the_connection(apns: FakeProcess) -> None:
    await apns.answer(Rule(hang=True))
    async with opened(apns.url) as provider:
        hanging = asyncio.create_task(send(provider))
        await has_arrived(apns, 1)
        hanging.cancel()
        await asyncio.wait([hanging])
        assert isinstance(await send(provider), CallAccepted)
    assert (await apns.tell()).counts.connections == 1


async def test_until_the_first_answer_one_is_under_way_and_then_many(apns: FakeProcess) -> None:
    """As APNs wants it. All of it is more than a connection's window, which the fake gives back."""
    await apns.answer(always=HELD)
    async with opened(apns.url) as provider:
        sending = [asyncio.create_task(send(provider, 4_000)) for _ in range(60)]
        await has_arrived(apns, 1)
        await asyncio.sleep(0.1)  # for a second one that were under way
        assert (await apns.tell()).counts.calls == 1
        await apns.let_go()
        await has_arrived(apns, 60)
        await apns.let_go()
        answers = await asyncio.gather(*sending)
    assert all(isinstance(answer, CallAccepted) for answer in answers)
    counts = (await apns.tell()).counts
    assert counts.connections == 1 and counts.most == 59


async def test_who_waits_for_room_is_asked_when_there_is_some(apns: FakeProcess) -> None:
    await apns.answer(always=HELD)
    asked = list[int]()

    def want() -> bool:
        asked.append(len(asked))
        return len(asked) < 2

    async with opened(apns.url) as provider:
        sending = [asyncio.create_task(provider.send({"aps": {}}, DEVICE, f"{number}~1", want)) for number in range(2)]
        await has_arrived(apns, 1)
        assert len(asked) == 1
        await apns.let_go()
        answers = await asyncio.gather(*sending, return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == [CallAccepted.__name__, NotCalled.__name__]
    assert len((await apns.tell()).arrived) == 1


async def test_what_was_silent_for_long_is_asked_before_it_is_used(
    apns: FakeProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(apns.url) as provider:
        await send(provider)
        last = time.monotonic()
        monkeypatch.setattr(connection, "PING_SECONDS", 30.0)
        # Nothing was heard for longer than this at the first look, and something was at the second.
        monkeypatch.setattr(connection, "monotonic", lambda: last + 2 * connection.FRESH_SECONDS)
        assert isinstance(await send(provider), CallAccepted)
    assert (await apns.tell()).counts.connections == 1


@pytest.mark.slow
async def test_who_does_not_answer_the_question_gets_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "PING_SECONDS", 0.2)
    async with fake_process("apns_fake") as apns, opened(apns.url, call_seconds=3.0) as provider:
        assert isinstance(await send(provider), CallAccepted)
        assert apns._process is not None
        os.kill(apns._process.pid, signal.SIGSTOP)
        try:
            monkeypatch.setattr(connection, "FRESH_SECONDS", 0.0)
            answer = await provider.send({"aps": {}}, DEVICE, "m~1", pytest.fail)
        finally:
            os.kill(apns._process.pid, signal.SIGCONT)
        assert answer == NotNow("127.0.0.1 gave no answer within 3 s")


async def test_closing_says_goodbye(apns: FakeProcess) -> None:
    async with opened(apns.url) as provider:
        await send(provider)
        await provider.close()

        async def has_ended() -> bool:
            return (await apns.tell()).counts.ended == 1

        await until(has_ended, "the end of the connection")
        assert isinstance(await send(provider), NotNow)


async def test_closing_ends_what_is_under_way(apns: FakeProcess) -> None:
    await apns.answer(always=Rule(hang=True))
    async with opened(apns.url) as provider:
        sending = [asyncio.create_task(send(provider)) for _ in range(2)]
        await has_arrived(apns, 1)
        await provider.close()
        kinds = {type(answer) for answer in await asyncio.gather(*sending)}
    assert kinds == {CallUnanswered, NotNow}


async def test_closing_ends_a_connection_that_is_being_made() -> None:
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        greeted.set()
        await reader.read()

    greeted = asyncio.Event()
    async with scripted(say_nothing) as address, opened(f"http://{address}") as provider:
        sending = asyncio.create_task(provider.send({"aps": {}}, DEVICE, "m~1", pytest.fail))
        await greeted.wait()
        await provider.close()
        assert isinstance(await sending, NotNow)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers, but not in HTTP/2"),
        (b"\0\0\0\x09\0\0\0\0\0", "answers, but not in HTTP/2"),
        (b"\0\0\x04\x07\0\0\0\0\0\0\0\0\0", "answers, but not in HTTP/2"),
        (b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0", "broke off without an answer"),
        (b"", "broke off without an answer"),
    ],
)
async def test_who_speaks_something_else_takes_nothing(said: bytes, told: str) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        if said:
            await reader.read()

    async with scripted(speak) as address, opened(f"http://{address}") as provider:
        answer = await provider.send({"aps": {}}, DEVICE, "m~1", pytest.fail)
    assert answer == NotNow(f"127.0.0.1 {told}")


async def test_nonsense_in_mid_call_leaves_it_in_doubt() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\0\x04\0\0\0\0\0")  # its settings
        await reader.readuntil(b'"aps"')
        writer.write(b"\xff" * 20)
        await reader.read()

    async with scripted(speak) as address, opened(f"http://{address}") as provider:
        assert await send(provider) == CallUnanswered("127.0.0.1 answers, but not in HTTP/2")


async def test_who_ends_each_connection_at_once_is_left_alone_soon() -> None:
    greeted = 0

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal greeted
        greeted += 1
        writer.write(b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x08\x07\0\0\0\0\0" + b"\0" * 8)
        await reader.read()

    async with scripted(greet) as address, opened(f"http://{address}") as provider:
        answer = await provider.send({"aps": {}}, DEVICE, "m~1", pytest.fail)
    assert answer == NotNow("127.0.0.1 ends its connections as soon as they are made")
    assert greeted <= CONNECTIONS + 1


def test_on_uvloop_all_is_the_same(tmp_path: Path) -> None:
    """The loop of the services, whose transports are of other classes."""

    async def send_many(url: str, trust: ssl.SSLContext | None) -> None:
        async with opened(url, trust=trust) as provider:
            answers = await asyncio.gather(*(send(provider, 4_000) for _ in range(60)))
        assert all(isinstance(answer, CallAccepted) for answer in answers)

    async def send_both_ways() -> None:
        authority = Authority()
        trust = trusting_context()
        trust.load_verify_locations(cadata=authority.pem.decode())
        async with fake_process("apns_fake") as apns:
            await send_many(apns.url, None)
            assert (await apns.tell()).counts.connections == 1
        async with _apns_over_tls(authority, tmp_path, protocols=["h2"]) as port:
            await send_many(f"https://127.0.0.1:{port}", trust)

    uvloop.run(send_both_ways())


async def test_over_tls_http2_is_agreed_on(tmp_path: Path) -> None:
    authority = Authority()
    trust = trusting_context()
    trust.load_verify_locations(cadata=authority.pem.decode())
    async with _apns_over_tls(authority, tmp_path, protocols=["h2"]) as port:
        async with opened(f"https://127.0.0.1:{port}", trust=trust) as provider:
            assert isinstance(await send(provider), CallAccepted)
        async with opened(f"https://127.0.0.1:{port}") as provider:
            answer = await send(provider)
    assert isinstance(answer, NotNow) and answer.detail.startswith("127.0.0.1 cannot be trusted: ")


async def test_a_server_that_has_no_http2_takes_nothing(tmp_path: Path) -> None:
    authority = Authority()
    trust = trusting_context()
    trust.load_verify_locations(cadata=authority.pem.decode())
    async with (
        _apns_over_tls(authority, tmp_path, protocols=["http/1.1"]) as port,
        opened(f"https://127.0.0.1:{port}", trust=trust) as provider,
    ):
        answer = await send(provider)
    assert answer == NotNow("127.0.0.1 does not speak HTTP/2")


@asynccontextmanager
async def _apns_over_tls(authority: Authority, folder: Path, protocols: list[str]) -> AsyncIterator[int]:
    certificate = folder / "apns.pem"
    certificate.write_bytes(authority.issue("apns"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(protocols)
    notes = Notes()

    def make() -> Any:
        return apns_fake.ApnsConnection(notes)

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_who_takes_few_at_a_time_gets_more_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apns_fake, "_STREAMS", 2)
    notes = Notes()
    server = await asyncio.get_running_loop().create_server(lambda: apns_fake.ApnsConnection(notes), "127.0.0.1", 0)
    async with server, opened(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as provider:
        for _ in range(connection.PROVING_ANSWERS):
            await send(provider)
        assert notes.counts.connections == 1
        notes.always = HELD
        sending = [asyncio.create_task(send(provider)) for _ in range(60)]
        # Two on the first connection, and the one that a new connection takes.
        await until(lambda: len(notes.arrived) == connection.PROVING_ANSWERS + 3, "a call on another connection")
        notes.always = Rule(200)
        notes.let_go()
        answers = await asyncio.gather(*sending)
    assert all(isinstance(answer, CallAccepted) for answer in answers)
    assert notes.counts.connections <= CONNECTIONS


async def test_who_leaves_while_a_goodbye_is_said_just_leaves(apns: FakeProcess) -> None:
    await apns.answer(always=Rule(hang=True))
    async with opened(apns.url) as provider:
        sending = asyncio.create_task(send(provider))
        await has_arrived(apns, 1)
        closing = asyncio.create_task(provider.close())
        await asyncio.sleep(0)  # the goodbye is said before the cancellation arrives, and its end comes behind it
        sending.cancel()
        await asyncio.wait([sending, closing])
    assert sending.cancelled()
