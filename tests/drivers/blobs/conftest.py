"""Blobs of both kinds, each with the owner of what lies there."""

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pytest
from botocore.loaders import JSONFileLoader

from shared.drivers.blobs import Blobs, LateBlobs
from shared.drivers.blobs.files import FolderBlobs
from shared.drivers.blobs.s3 import S3Blobs
from tests.drivers.blobs.owners import BucketOwner, FolderOwner, Owner
from tests.stack import Endpoints

OTHER, AWAY = "other-bucket", "away-bucket"

# botocore parses megabytes of JSON for each new client.
_load_once = cache(JSONFileLoader().load_file)
JSONFileLoader.load_file = lambda _, path: _load_once(path)  # type: ignore[assignment, method-assign]


class Buckets(NamedTuple):
    """Two buckets of the test's own on the S3 server; `away` is allowed too, and nobody has made it."""

    url: str
    default: str
    other: str
    away: str


class Place(NamedTuple):
    """One kind of blobs, what else is allowed there, and the owner."""

    blobs: Blobs
    owner: Owner
    other: str
    away: str


@pytest.fixture
def buckets(stack: Endpoints) -> Iterator[Buckets]:
    mark = secrets.token_hex(6)
    each = Buckets(stack.s3_url, f"carillon-{mark}", f"other-{mark}", f"away-{mark}")
    owner = BucketOwner(stack.s3_url)
    for bucket in (each.default, each.other):
        owner.make(bucket)
    yield each
    for bucket in (each.default, each.other):
        owner.remove(bucket)


def s3_blobs(buckets: Buckets, *, public_endpoint_url: str = "") -> S3Blobs:
    return S3Blobs(
        f"s3://{buckets.default}",
        endpoint_url=buckets.url,
        public_endpoint_url=public_endpoint_url,
        region="us-east-1",
        access_key="anybody",
        secret_key="anything",
        allowed_buckets=(buckets.other, buckets.away),
    )


@asynccontextmanager
async def closing(blobs: S3Blobs) -> AsyncIterator[S3Blobs]:
    try:
        yield blobs
    finally:
        await blobs.close()


@pytest.fixture
async def s3(buckets: Buckets) -> AsyncIterator[S3Blobs]:
    blobs = s3_blobs(buckets)
    yield blobs
    await blobs.close()


def folder_blobs(folder: Path) -> FolderBlobs:
    return FolderBlobs.open(folder.as_uri(), allowed_buckets=(OTHER, AWAY))


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[FolderBlobs]:
    blobs = folder_blobs(tmp_path)
    yield blobs
    await blobs.close()


@pytest.fixture(params=["folder", "late", pytest.param("s3", marks=pytest.mark.native)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    each = Place(folder_blobs(tmp_path), FolderOwner(tmp_path), OTHER, AWAY)
    if request.param == "late":
        late = LateBlobs(each.blobs.bucket, lambda: partial(folder_blobs, tmp_path))
        each = each._replace(blobs=late)
    if request.param == "s3":
        buckets: Buckets = request.getfixturevalue("buckets")
        each = Place(s3_blobs(buckets), BucketOwner(buckets.url), buckets.other, buckets.away)
    yield each
    await each.blobs.close()


@pytest.fixture
def blobs(place: Place) -> Blobs:
    return place.blobs


@pytest.fixture
def owner(place: Place) -> Owner:
    return place.owner


@pytest.fixture
def path(blobs: Blobs) -> str:
    return f"{blobs.bucket}/jobs/players.csv"
