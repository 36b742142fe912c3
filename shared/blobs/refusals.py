"""The codes by which S3 refuses for good, and their meaning to the caller. Other codes may pass, or are not the
fault of the path: bad credentials, a server in trouble."""

from collections.abc import Mapping
from typing import Any

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
