"""Styles and scripts: compressed for who reads that, and as they are for others."""

import gzip

import pytest

from tests.services.api.conftest import House
from tests.services.api.http.pages.browser import tags_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.native]

FIRST_BYTES = 40_000


async def test_files_come_compressed_to_who_reads_that(house: House) -> None:
    page = await house.admin.get("/ui/apps")
    names = [tag["href"] for tag in tags_of(page, "link")] + [tag["src"] for tag in tags_of(page, "script")]
    assert len(names) == 4
    total = 0
    for name in names:
        plain, packed = [await house.admin.get(name or "", accept_encoding=each) for each in ("identity", "br, gzip")]
        assert (plain.status, packed.status, packed.headers["content-encoding"]) == (200, 200, "gzip")
        assert "content-encoding" not in plain.headers
        assert gzip.decompress(packed.body) == plain.body
        assert plain.headers["vary"] == packed.headers["vary"] == "accept-encoding"
        total += len(packed.body)
    assert total < FIRST_BYTES
