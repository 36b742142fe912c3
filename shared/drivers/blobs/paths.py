"""Rules of paths, of S3's settings and of its refusals, without the driver, so that a process reports mistakes at its
start. A path is "<bucket>/<key>", as in Marathon's `csvPath`."""

import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from shared.core.errors import Invalid

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


# As the driver judges the host of an endpoint.
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_HOST = re.compile(rf"(?=.{{1,255}}\Z)({_LABEL}\.)*{_LABEL}\.?")


def check_settings(
    url: str,
    *,
    endpoint_url: str,
    public_endpoint_url: str,
    access_key: str,
    secret_key: str,
    allowed_buckets: Collection[str],
) -> tuple[str, frozenset[str]]:
    """The bucket for Carillon's own files, and all buckets that paths may name. Raises `Invalid`."""
    parts = urlsplit(url)
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise Invalid("needs s3://<bucket> and nothing behind it", field="blobs.url")
    for name, address in (("endpoint_url", endpoint_url), ("public_endpoint_url", public_endpoint_url)):
        if address and not _has_host(address):
            raise Invalid("needs http:// or https:// and a host", field=f"blobs.{name}")
    if bool(access_key) != bool(secret_key):
        raise Invalid("an access key needs its secret key, and the other way round", field="blobs.access_key")
    return parts.netloc, buckets_of(parts.netloc, allowed_buckets)


def _has_host(address: str) -> bool:
    # `urlsplit` silently drops these characters.
    if not {"\t", "\r", "\n"}.isdisjoint(address):
        return False
    try:
        host = urlsplit(address).hostname
    except ValueError:
        return False
    return host is not None and _HOST.fullmatch(host) is not None


# The codes by which S3 refuses for good, and their meaning to the caller. Other codes may pass, or are not the fault of
# the path: bad credentials, a server in trouble.
_READS = {"HeadObject", "GetObject"}
_WRITES = {
    "PutObject",
    "CreateMultipartUpload",
    "UploadPart",
    "CompleteMultipartUpload",
    "AbortMultipartUpload",
}
_BY_STATUS = {"403": "AccessDenied", "404": "NoSuchKey", "412": "PreconditionFailed", "416": "InvalidRange"}

MISSING = {
    "NoSuchKey": "there is no such object",
    "NoSuchBucket": "there is no such bucket",
    "AccessDenied": "S3 denies access, which is also its answer for a missing object where listing is not allowed",
    "InvalidObjectState": "the object is archived and must be restored first",
}
"""The meaning of codes when an object is looked up."""

CHANGED = {
    "PreconditionFailed": "the object has changed",
    "InvalidRange": "the object has changed",
    "NoSuchKey": "the object is gone",
    "NoSuchBucket": "the bucket is gone",
    "InvalidObjectState": MISSING["InvalidObjectState"],
}
"""The meaning for an object that was seen before. Access that is denied now was granted then, and may be again."""

UNWRITABLE = {
    "AccessDenied": "S3 denies access",
    "AllAccessDisabled": "S3 denies access",
    "NoSuchBucket": "there is no such bucket",
}
"""The meaning when an object is written."""

NO_UPLOAD = "NoSuchUpload"

MISMATCHED = {
    "InvalidPart": "a part is not there, or another content has taken its place",
    "InvalidPartOrder": "the parts are not in order",
    "EntityTooSmall": "a part that is not the last is too small",
}
"""The meaning when the parts of an upload are joined."""


DENIALS = {"ExpiredToken", "InvalidToken", "AuthorizationHeaderMalformed"}
_DENIED_STATUSES = {401, 403}


def is_denial(answer: Mapping[str, Any]) -> bool:
    """Whether credentials or rights are wrong. (Some of these codes come with the status 400.)"""
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return status in _DENIED_STATUSES or answer.get("Error", {}).get("Code") in DENIALS


def refusal(answer: Mapping[str, Any], operation: str) -> str:
    """S3's code in this answer; without a body, the code for its status. Empty for refusals of other servers, such as
    those that issue credentials."""
    code = str(answer.get("Error", {}).get("Code", ""))
    return _BY_STATUS.get(code, code) if operation in _READS | _WRITES else ""
