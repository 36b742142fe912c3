"""Answers without an end: a body that grows when it is decoded, a page that leads to itself."""

import gzip
import tracemalloc

import pytest
from aiohttp import web

from carillon import CarillonError, connections
from carillon.connections import HEARD_BYTES, AnswerBody, Progress
from tests.client.both import Kind
from tests.client.test_attempts import Scripted, fired, scripted

MEBIBYTE = 2**20
ENCODED = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
ROUND = {"Link": '</users?limit=100>; rel="next"'}


def packed(content: bytes, status: int = 200) -> web.Response:
    return web.Response(status=status, body=gzip.compress(content, 1), headers=ENCODED)


@pytest.mark.parametrize("status", [200, 400, 503])
async def test_a_gzip_bomb_ends_with_an_error(each_client: Kind, status: int) -> None:
    server = Scripted(packed(bytes(connections.MOST_BYTES + 1), status))
    async with scripted(server, attempts=2) as client:
        with pytest.raises(CarillonError, match="longer than 64 MiB") as caught:
            await client.whoami()
    assert caught.value.status == status
    assert len(server.asked) == 1


async def test_a_large_answer_without_encoding_ends_with_an_error(
    each_client: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MOST_BYTES", MEBIBYTE)
    server = Scripted(web.Response(body=bytes(MEBIBYTE + 1)), fired())
    async with scripted(server, attempts=1) as client:
        with pytest.raises(CarillonError, match="longer than 1 MiB"):
            await client.whoami()
        assert (await client.schedules.fire("k")).id == "i"


async def test_an_answer_in_gzip_is_read(each_client: Kind) -> None:
    async with scripted(Scripted(packed(b'{"id":"i","due":"2030-01-01T00:00:00Z"}'))) as client:
        assert (await client.schedules.fire("k")).id == "i"


async def test_what_is_not_gzip_as_it_says_is_attempted_again(each_client: Kind) -> None:
    server = Scripted(web.Response(body=b"{}", headers=ENCODED), fired())
    async with scripted(server) as client:
        assert (await client.schedules.fire("k")).id == "i"


def test_a_bomb_takes_no_memory() -> None:
    bomb = gzip.compress(bytes(256 * MEBIBYTE), 1)
    body = AnswerBody(200, [(b"content-encoding", b"gzip")])
    tracemalloc.start()
    try:
        with pytest.raises(CarillonError):
            body.add(bomb)
        assert tracemalloc.get_traced_memory()[1] < 160 * MEBIBYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", [b"gzip, gzip", b"deflate", b"br"])
def test_what_was_not_asked_for_is_not_decoded(encoding: bytes) -> None:
    body = AnswerBody(200, [(b"Content-Encoding", encoding)])
    body.add(b"as it is")
    assert body.response().content == b"as it is"


async def test_a_page_that_leads_to_itself_ends_with_an_error(each_client: Kind) -> None:
    server = Scripted(*(web.json_response([], headers=ROUND) for _ in range(3)))
    async with scripted(server) as client:
        with pytest.raises(CarillonError, match="goes round"):
            _ = [user async for user in client.users.list()]
    assert len(server.asked) == 1


def test_an_early_answer_whose_head_does_not_end_is_heard_no_longer() -> None:
    progress = Progress()
    progress.heard = b"HTTP/1.1 103 Early Hints\r\n"
    assert not progress.ended
    progress.heard += b"a" * HEARD_BYTES
    assert progress.ended
