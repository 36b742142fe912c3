"""The rules of S3's settings, checked without the driver, so that a process reports mistakes at its start."""

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from shared.blobs.paths import buckets_of
from shared.domain.errors import Invalid

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
