"""Signature Version 4 as the receiving side checks it, by AWS's description: moto takes any signature."""

import hashlib
import hmac
from functools import reduce
from urllib.parse import parse_qsl, quote, urlsplit


def holds(url: str, *, method: str, host: str, secret_key: str) -> bool:
    """Whether a presigned URL's signature is right for a request that names this host."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, strict_parsing=True))
    given = query.pop("X-Amz-Signature")
    canonical = "\n".join([method, parts.path, _canonical(query), f"host:{host}", "", "host", "UNSIGNED-PAYLOAD"])
    scope = query["X-Amz-Credential"].split("/", 1)[1]
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", query["X-Amz-Date"], scope, digest])
    key = reduce(_hmac, scope.split("/"), f"AWS4{secret_key}".encode())
    return hmac.compare_digest(_hmac(key, text).hex(), given)


def _canonical(query: dict[str, str]) -> str:
    return "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(query.items()))


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
