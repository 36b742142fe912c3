"""Whatever the path, it is refused, or names one object within an allowed bucket."""

import posixpath
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Invalid
from shared.drivers.blobs.paths import KEY_BYTES, Place, buckets_of, find_place

PIECES = st.sampled_from(
    ["bucket", "other", "", ".", "..", "a", "é", "\0", "\n", " ", "%2e", "\\", "\ud800", "x" * 600]
)
PATHS = st.lists(PIECES, max_size=6).map(lambda pieces: "/".join(["bucket", *pieces])) | st.text()


def place_of(path: str) -> Place | None:
    with suppress(Invalid):
        return find_place(path, {"bucket"})
    return None


@given(PATHS)
def test_what_is_taken_stays_in_its_bucket(path: str) -> None:
    if place := place_of(path):
        assert f"{place.bucket}/{place.key}" == path
        assert place.bucket == "bucket"
        assert 1 <= len(place.key.encode()) <= KEY_BYTES
        # Whoever may tidy up the path of a URL on its way ends in the bucket as well.
        assert posixpath.normpath(f"/bucket/{place.key}").split("/")[1] == "bucket"


@pytest.mark.parametrize("bucket", ["", ".", "..", ".partial", "a/b", "ab", "-ab", "a b", "a\n", "x" * 256])
def test_what_is_no_bucket_cannot_be_allowed(bucket: str) -> None:
    with pytest.raises(Invalid, match="not the name of a bucket"):
        buckets_of("carillon", [bucket])
    with pytest.raises(Invalid, match="not the name of a bucket"):
        buckets_of(bucket, [])


def test_the_default_bucket_is_allowed_as_well() -> None:
    assert buckets_of("carillon", ["Old_Bucket.2"]) == {"carillon", "Old_Bucket.2"}
