"""What is particular to S3, on moto's server."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from shared.core.errors import Invalid
from shared.drivers.blobs.s3 import S3Blobs
from tests.drivers.blobs import signatures
from tests.drivers.blobs.conftest import Buckets, closing, s3_blobs
from tests.drivers.blobs.owners import BucketOwner, parts

pytestmark = pytest.mark.native


def put(url: str, content: bytes) -> int:
    request = urllib.request.Request(url, data=content, method="PUT", headers={"Content-Type": "text/csv"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        status: int = answer.status
    return status


async def test_anybody_may_put_what_a_url_names(s3: S3Blobs) -> None:
    path = f"{s3.bucket}/jobs/job 1-ç.csv"
    url = await s3.upload_url(path, seconds=300)
    assert await asyncio.to_thread(put, url, b"userIds\n1\n") == 200
    assert (await s3.stat(path)).size == 10
    asked = parse_qs(urlsplit(url).query)
    assert asked["X-Amz-Expires"] == ["300"]
    assert asked["X-Amz-SignedHeaders"] == ["host"]  # whoever uses it may send any other


async def test_a_url_for_others_is_signed_for_the_address_that_they_know(buckets: Buckets) -> None:
    address = buckets.url.replace("127.0.0.1", "localhost")
    inside, outside = urlsplit(buckets.url).netloc, urlsplit(address).netloc
    async with closing(s3_blobs(buckets, public_endpoint_url=address)) as blobs:
        path = f"{blobs.bucket}/jobs/players.csv"
        url = await blobs.upload_url(path, seconds=300)
        assert urlsplit(url)[:3] == ("http", outside, f"/{path}")
        assert signatures.holds(url, method="PUT", host=outside, secret_key="anything")
        assert not signatures.holds(url, method="PUT", host=inside, secret_key="anything")
        assert await asyncio.to_thread(put, url, b"userIds\n1\n") == 200
        assert (await blobs.stat(path)).size == 10


async def test_what_we_ask_ourselves_goes_where_we_reach_s3(buckets: Buckets) -> None:
    async with closing(s3_blobs(buckets, public_endpoint_url="https://files.example.com")) as blobs:
        path = f"{blobs.bucket}/jobs/players.csv"
        assert (await blobs.upload_url(path, seconds=300)).startswith(f"https://files.example.com/{path}?")
        await blobs.write(path, parts(b"userIds\n"))
        assert (await blobs.stat(path)).size == 8


async def test_without_another_address_a_url_names_the_one_there_is(s3: S3Blobs, buckets: Buckets) -> None:
    assert urlsplit(await s3.upload_url(f"{s3.bucket}/a.csv", seconds=300)).netloc == urlsplit(buckets.url).netloc


@pytest.mark.parametrize("key", ["/a.csv", "a//b.csv", "a/"])
async def test_what_only_s3_takes_for_a_name_is_one(s3: S3Blobs, buckets: Buckets, key: str) -> None:
    await s3.write(f"{s3.bucket}/{key}", parts(b"x"))
    assert (await s3.stat(f"{s3.bucket}/{key}")).size == 1
    assert BucketOwner(buckets.url).get(f"{s3.bucket}/{key}") == b"x"


async def test_a_large_write_is_not_seen_before_its_end(s3: S3Blobs, buckets: Buckets) -> None:
    path, owner = f"{s3.bucket}/large.csv", BucketOwner(buckets.url)

    async def watched() -> AsyncIterator[bytes]:
        yield bytes(9 * 2**20)
        assert owner.unfinished(s3.bucket) == 1
        with pytest.raises(urllib.error.HTTPError, match="404"):
            owner.get(path)
        yield b"end"

    await s3.write(path, watched())
    assert (await s3.stat(path)).size == 9 * 2**20 + 3
    assert owner.unfinished(s3.bucket) == 0


async def test_a_bucket_is_made_once_and_keeps_what_is_in_it(buckets: Buckets) -> None:
    owner, fresh = BucketOwner(buckets.url), buckets._replace(default=buckets.away)
    try:
        async with closing(s3_blobs(fresh)) as blobs:
            for _ in range(2):
                await blobs.make_bucket()
                await blobs.write(f"{fresh.default}/a.csv", parts(b"x"))
                assert (await blobs.stat(f"{fresh.default}/a.csv")).size == 1
    finally:
        owner.remove(fresh.default)


async def test_a_bucket_that_another_makes_in_between_is_there(buckets: Buckets) -> None:
    owner, fresh = BucketOwner(buckets.url), buckets._replace(default=buckets.away)
    try:
        async with closing(s3_blobs(fresh)) as blobs, blobs._ask(30) as client:
            look = client.head_bucket

            async def look_before_another_makes_it(**asked: Any) -> Any:
                try:
                    return await look(**asked)
                finally:
                    # In its default region alone, S3 takes a second request for the first.
                    elsewhere: Any = {"LocationConstraint": "eu-west-1"}
                    await client.create_bucket(Bucket=fresh.default, CreateBucketConfiguration=elsewhere)

            client.head_bucket = look_before_another_makes_it  # type: ignore[method-assign]
            await blobs.make_bucket()
            await blobs.write(f"{fresh.default}/a.csv", parts(b"x"))
    finally:
        owner.remove(fresh.default)


async def test_a_bucket_that_does_not_exist_takes_nothing(s3: S3Blobs, buckets: Buckets) -> None:
    for size in (1, 9 * 2**20):
        with pytest.raises(Invalid, match="there is no such bucket"):
            await s3.write(f"{buckets.away}/a.csv", parts(bytes(size)))
