"""A call arrives as it was given, and its answer is told as it came."""

import asyncio
import gzip
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook

from shared.drivers.http import Answer, Posting
from shared.drivers.http.client import HttpOutgoing
from tests.drivers.http.receiver import INTERNET, Receiver, a_call, calling, scripted

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def test_the_request_arrives_as_it_was_given(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    headers = {"X-Team": "a, b", "carillon-key": "training-42"}
    answer = await outgoing.call(a_call(f"{receiver.url}/hook", method="PUT", headers=headers, body=b'{"a": 1.0}'))
    assert answer == Answer(status=200, retry_after_seconds=None, excerpt="")
    (got,) = receiver.received
    assert (got.method, got.path, got.body) == ("PUT", "/hook", b'{"a": 1.0}')
    assert got.header("x-team") == ["a, b"] and got.header("carillon-key") == ["training-42"]
    assert got.header("content-type") == ["application/json"]
    assert got.header("user-agent") == ["Carillon"]
    assert got.header("content-length") == ["10"] and got.header("transfer-encoding") == []


async def test_what_tells_who_is_asking_is_not_sent_even_where_it_was_stored(
    outgoing: HttpOutgoing, receiver: Receiver
) -> None:
    stored = {"X-Forwarded-Email": "admin@example.com", "x_real_ip": "127.0.0.1", "Metadata-Flavor": "G", "X-Team": "a"}
    assert (await outgoing.call(a_call(receiver.url, headers=stored))).accepted
    (got,) = receiver.received
    assert got.header("x-team") == ["a"]
    for name in ("x-forwarded-email", "x_real_ip", "metadata-flavor"):
        assert got.header(name) == []


@pytest.mark.parametrize("path", ["/a%2Fb/%41%7e?x=a+b%20c&y=%22&z", "/a/../b//c/./;x", "/?q=%C3%A4"])
async def test_the_path_is_sent_byte_for_byte(outgoing: HttpOutgoing, receiver: Receiver, path: str) -> None:
    await outgoing.call(a_call(receiver.url + path))
    assert receiver.received[0].path == path


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_a_call_without_a_body(outgoing: HttpOutgoing, receiver: Receiver, method: str) -> None:
    assert (await outgoing.call(a_call(receiver.url, method=method, body=b""))).accepted
    assert (receiver.received[0].method, receiver.received[0].body) == (method, b"")


async def test_headers_of_the_user_stand_in_for_the_defaults(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    await outgoing.call(a_call(receiver.url, headers={"CONTENT-TYPE": "text/plain", "user-agent": "MyCoach"}))
    assert receiver.received[0].header("content-type") == ["text/plain"]
    assert receiver.received[0].header("user-agent") == ["MyCoach"]


async def test_without_a_secret_the_message_has_its_id_and_no_signature(
    outgoing: HttpOutgoing, receiver: Receiver
) -> None:
    await outgoing.call(a_call(receiver.url))
    (got,) = receiver.received
    assert got.header("webhook-id") == ["m1"] and got.header("webhook-timestamp") == ["1800000000"]
    assert got.header("webhook-signature") == []


async def test_a_receiver_can_verify_a_signed_call(
    outgoing: HttpOutgoing, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await outgoing.call(a_call(receiver.url, secrets=(SECRET,), body='{"näme":"☃"}'.encode()))
    (got,) = receiver.received
    monkeypatch.setattr(Webhook, "_Webhook__verify_timestamp", lambda _, text: datetime.fromtimestamp(int(text), UTC))
    assert Webhook(SECRET).verify(got.body, dict(got.headers)) == {"näme": "☃"}


@pytest.mark.parametrize(
    ("status", "accepted"),
    [(200, True), (202, True), (204, True), (299, True), (304, False), (400, False), (410, False), (503, False)],
)
async def test_any_2xx_is_accepted_and_nothing_else(
    outgoing: HttpOutgoing, receiver: Receiver, status: int, accepted: bool
) -> None:
    receiver.answer = lambda: web.Response(status=status)
    answer = await outgoing.call(a_call(receiver.url))
    assert (answer.status, answer.accepted) == (status, accepted)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_an_answer_and_is_not_followed(
    outgoing: HttpOutgoing, receiver: Receiver, status: int
) -> None:
    receiver.answer = lambda: web.Response(status=status, headers={"Location": f"{receiver.url}/elsewhere"})
    answer = await outgoing.call(a_call(receiver.url))
    assert (answer.status, answer.accepted, len(receiver.received)) == (status, False, 1)


async def test_retry_after_is_read_by_the_clock_of_the_server(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    times = {"Date": "Thu, 01 Jan 1970 00:00:10 GMT", "Retry-After": "Thu, 01 Jan 1970 00:01:40 GMT"}
    receiver.answer = lambda: web.Response(status=503, headers=times)
    assert (await outgoing.call(a_call(receiver.url))).retry_after_seconds == 90
    receiver.answer = lambda: web.Response(status=429, headers={"Retry-After": "7"})
    assert (await outgoing.call(a_call(receiver.url))).retry_after_seconds == 7


async def test_the_excerpt_is_the_beginning_of_the_body_on_one_line(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    receiver.answer = lambda: web.Response(status=500, body=b"line one\r\nline\0two \xff" + b"x" * 5_000)
    answer = await outgoing.call(a_call(receiver.url))
    assert answer.excerpt.startswith("line one  line two �xxx")
    assert len(answer.excerpt) == 256


async def test_compressed_bodies_are_neither_asked_for_nor_unpacked(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    packed = gzip.compress(b"\0" * 10**6)
    receiver.answer = lambda: web.Response(body=packed, headers={"Content-Encoding": "gzip"})
    answer = await outgoing.call(a_call(receiver.url))
    assert answer.accepted and answer.excerpt == _shown(packed)
    assert receiver.received[0].header("accept-encoding") == ["identity"]


async def test_cookies_are_not_kept(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    receiver.answer = lambda: web.Response(headers={"Set-Cookie": "session=1; Path=/"})
    for _ in range(2):
        await outgoing.call(a_call(receiver.url))
    assert [got.header("cookie") for got in receiver.received] == [[], []]


async def test_the_environment_has_no_say(
    outgoing: HttpOutgoing, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("default login me password mine\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    assert (await outgoing.call(a_call(receiver.url))).accepted
    assert receiver.received[0].header("authorization") == []


async def test_a_connection_is_kept_after_a_short_answer_only(outgoing: HttpOutgoing, receiver: Receiver) -> None:
    async def peers(body: bytes) -> int:
        receiver.received.clear()
        receiver.answer = lambda: web.Response(body=body)
        for _ in range(3):
            await outgoing.call(a_call(receiver.url))
        return len({got.peer for got in receiver.received})

    assert await peers(b"ok") == 1
    assert await peers(b"x" * 1_000_000) == 3


async def test_at_most_so_many_connections_are_open(receiver: Receiver) -> None:
    async with calling(connections=2) as outgoing:
        answers = await asyncio.gather(*(outgoing.call(a_call(receiver.url)) for _ in range(20)))
    assert all(answer.accepted for answer in answers)
    assert len({got.peer for got in receiver.received}) <= 2


async def test_a_name_is_called_by_its_name(receiver: Receiver) -> None:
    port = receiver.url.rsplit(":", 1)[1]
    async with calling(lookup=lambda _: [INTERNET]) as outgoing:
        await outgoing.call(a_call(f"http://Hooks.Example.:{port}/"))
    assert receiver.received[0].header("host")[0].lower() == f"hooks.example:{port}"


def test_a_call_shows_no_secrets() -> None:
    shown = repr(
        a_call("https://h/?token=hush1", headers={"Authorization": "hush2"}, secrets=("hush3",), body=b"hush4")
    )
    assert "hush" not in shown and "m1" in shown


def _shown(body: bytes) -> str:
    text = body.decode(errors="replace")[:256]
    return "".join(character if character.isprintable() else " " for character in text).strip()


HEAD = b"HTTP/1.1 200 OK\r\n"
COUNTED = HEAD + b"Content-Length: 2\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"
MANY = b"".join(b"X-%d: %b\r\n" % (number, b"x" * 118) for number in range(499))

ODD = {
    "204 and bytes": (b"HTTP/1.1 204 No Content\r\n\r\nok", 204, ""),
    "204, closing, and bytes": (b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\nok", 204, ""),
    "204 with a length": (b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\n", 204, ""),
    "204 with a length and fewer bytes": (b"HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nok", 204, ""),
    "204 in chunks": (b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 204, ""),
    "304 and bytes": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok", 304, ""),
    "205 and bytes": (b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\nok", 205, ""),
    "more than the length": (COUNTED + b"\r\nok!!", 200, "ok"),
    "more than the length, closing": (COUNTED + b"Connection: close\r\n\r\nok!!", 200, "ok"),
    "another answer": (COUNTED + b"\r\nokHTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 200, "ok"),
    "bytes behind the chunks": (CHUNKED + b"\r\nmore", 200, "ok"),
    "a trailer": (CHUNKED + b"X-Sum: 1\r\n\r\n", 200, "ok"),
    "no trailer": (CHUNKED + b"(no name)\r\n\r\n", 200, "ok"),
    "a broken chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\nxyz\r\n", 200, "ok"),
    "chunks and a length": (COUNTED + CHUNKED.removeprefix(HEAD) + b"\r\n", 200, "ok"),
    "a length twice": (COUNTED + b"content-length: 2\r\n\r\nok", 200, "ok"),
    "a length twice in a line": (HEAD + b"Content-Length: 2, 2\r\n\r\nok", 200, "ok"),
    "two lengths": (COUNTED + b"Content-Length: 3\r\n\r\nok", 200, "ok"),
    "no number for a length": (HEAD + b"Content-Length: two\r\n\r\nok", 200, "ok"),
    "no length, closing": (HEAD + b"Connection: close\r\n\r\nok", 200, "ok"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nok", 200, "ok"),
    "ends of lines without CR": (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", 200, "ok"),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
    "an odd reason": ("HTTP/1.1 200 Alles \0 schön: 404\r\nContent-Length: 2\r\n\r\nok".encode(), 200, "ok"),
    "lower case": (b"http/1.1 200 ok\r\ncontent-length: 2\r\n\r\nok", 200, "ok"),
    "two blanks": (b"HTTP/1.1  200  OK\r\nContent-Length:2\r\n\r\nok", 200, "ok"),
    "a version to come": (b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok"),
    "blank lines first": (b"\r\n\r\n" + COUNTED + b"\r\nok", 200, "ok"),
    "odd fields": (COUNTED + b"no colon\r\nX Y: 1\r\nX : \0\xff\x01\r\n: 1\r\n\tfolded\r\n\r\nok", 200, "ok"),
    "hints": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\nContent-Length: 2\n\n" + COUNTED + b"\r\nok",
        200,
        "ok",
    ),
    "a long head of many lines": (COUNTED + MANY[:65_000].rsplit(b"X-", 1)[0] + b"\r\nok", 200, "ok"),
    "a long line": (COUNTED + b"X: " + b"x" * 65_000 + b"\r\n\r\nok", 200, "ok"),
    "more lines than are kept": (COUNTED + b"X: 1\r\n" * 5_000 + b"\r\nok", 200, "ok"),
}


@pytest.mark.parametrize(("answer", "status", "body"), ODD.values(), ids=ODD.keys())
@pytest.mark.parametrize("whole", [True, False])
async def test_an_answer_is_as_good_as_its_status(answer: bytes, status: int, body: str, whole: bool) -> None:
    pieces = [answer] if whole else [answer[at : at + 1] for at in range(300)] + [answer[300:]]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b'{"id":"42"}')
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)

    async with scripted(serve) as address:
        async with calling() as outgoing:
            told = await outgoing.call(a_call(f"http://{address}/"))
        async with calling() as outgoing:
            posted = await outgoing.post(Posting(f"http://{address}/", {}, b'{"id":"42"}', 30.0, lambda: True))
    assert (told.status, told.excerpt) == (status, body)
    assert (posted.status, posted.body.decode()) == (status, body)


@pytest.mark.parametrize("late", [b"ok", b"ok\r\n\r\n", b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"])
async def test_late_bytes_of_an_answer_do_not_reach_the_next_call(outgoing: HttpOutgoing, late: bytes) -> None:
    connections, idle, sent = 0, asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b'{"id":"42"}')
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await idle.wait()
        writer.write(late)
        await writer.drain()
        sent.set()
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b'{"id":"42"}')
            writer.write(b"HTTP/1.1 500 No\r\n\r\n")

    async with scripted(serve) as address:
        assert (await outgoing.call(a_call(f"http://{address}/"))).status == 204
        idle.set()
        await sent.wait()
        assert (await outgoing.call(a_call(f"http://{address}/"))).status == 204
    assert connections == 2


@pytest.mark.parametrize("junk", [b"ok: ", b"{}\r\n\r\n" * 500])
async def test_late_bytes_of_an_answer_are_passed_over_by_the_next_call(outgoing: HttpOutgoing, junk: bytes) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b'{"id":"42"}')
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b'{"id":"42"}')
            for piece in (junk[:1], junk[1:] + b"HTTP/1", b".1 ", b"202 Accepted\r\nContent-Length: 0\r\n\r\n"):
                writer.write(piece)
                await asyncio.sleep(0.01)

    async with scripted(serve) as address:
        call = a_call(f"http://{address}/")
        assert [(await outgoing.call(call)).status for _ in range(3)] == [204, 202, 204]
    assert connections == 2
