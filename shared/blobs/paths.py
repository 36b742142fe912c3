"""Rules of paths. A path is "<bucket>/<key>", as in Marathon's `csvPath`."""

import re
from collections.abc import Collection
from typing import NamedTuple

from shared.domain.errors import Invalid

FIELD = "csvPath"
KEY_BYTES = 1_024  # S3's own limit

# S3's rules for new buckets and for those from before 2018; a name never begins with a dot.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,254}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Place(NamedTuple):
    """A path that has passed the rules."""

    bucket: str
    key: str

    @property
    def parts(self) -> list[str]:
        return self.key.split("/")


def buckets_of(default: str, allowed: Collection[str]) -> frozenset[str]:
    """The buckets that paths may name: the allowed ones and the default one. Raises `Invalid` for a bad name."""
    for bucket in (default, *allowed):
        if not _BUCKET.fullmatch(bucket):
            raise Invalid(f"{bucket!r} is not the name of a bucket", field="blobs")
    return frozenset({default, *allowed})


def find_place(path: str, buckets: Collection[str]) -> Place:
    """The bucket and the key of a path. Raises `Invalid` with the rule that the path breaks."""
    bucket, _, key = path.partition("/")
    try:
        _check_key(key)
        if bucket not in buckets:
            raise ValueError(f"the bucket must be one of {', '.join(sorted(buckets))}")
    except ValueError as error:
        raise invalid_path(path, str(error)) from None
    return Place(bucket, key)


def invalid_path(path: str, rule: str) -> Invalid:
    return Invalid(f"invalid csvPath: {rule}", field=FIELD, value=path.encode(errors="replace").decode())


def _check_key(key: str) -> None:
    if not key:
        raise ValueError("it must read <bucket>/<key>")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError("the key must be text that UTF-8 can write") from None
    if size > KEY_BYTES:
        raise ValueError(f"the key must have at most {KEY_BYTES} bytes")
    if _CONTROL.search(key):
        raise ValueError("the key must have no control characters")
    # S3 allows these as names, but HTTP clients and servers resolve them to other places.
    if not {".", ".."}.isdisjoint(key.split("/")):
        raise ValueError("no part of the key may be . or ..")
