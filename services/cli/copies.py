"""Copies of deliveries for a listening program: each is one POST, whose answer changes nothing."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from urllib.parse import urlsplit

import click
import httpx
from msgspec import Struct

from carillon.bus_deliveries import WholeBusDelivery
from services.cli.output.text import visible
from shared.outgoing.signing import check_secret, webhook_headers

SECONDS = 60.0
"""Long enough for a developer who steps through the program."""

_ALWAYS = {"Content-Type": "application/json", "User-Agent": "Carillon", "carillon-copy": "true"}


class CopyAnswer(Struct, frozen=True):
    """The answer to a copy: its status, or 0 and the `error`."""

    at: datetime
    ms: int
    status: int = 0
    error: str = ""


class CopyTarget:
    """The receiver of copies, and the secret that signs them, if any."""

    def __init__(self, client: httpx.Client, url: str, secret: str) -> None:
        self._client = client
        self._url = url
        self._secrets = (secret,) if secret else ()

    def post(self, delivery: WholeBusDelivery) -> CopyAnswer:
        """Post a copy of a delivery, byte for byte as the receiver gets it."""
        body = b"[" + b",".join(map(bytes, delivery.events)) + b"]"
        at, began = datetime.now(UTC), time.monotonic()
        try:
            status, error = self._send(body, self._headers(delivery, at, body)), ""
        except httpx.HTTPError as failure:
            status, error = 0, str(failure) or type(failure).__name__
        return CopyAnswer(at, round((time.monotonic() - began) * 1000), status, error)

    def _headers(self, delivery: WholeBusDelivery, at: datetime, body: bytes) -> Mapping[str, str]:
        signed = webhook_headers(delivery.id, int(at.timestamp()), body, *self._secrets)
        return {**_ALWAYS, **signed, "carillon-sequence": str(delivery.sequence), "carillon-attempt": "1"}

    def _send(self, body: bytes, headers: Mapping[str, str]) -> int:
        with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
            return answer.status_code  # its body may have no end


@contextmanager
def open_target(url: str, secret: str) -> Iterator[CopyTarget]:
    """A receiver of copies. No proxy is used."""
    check_target(url)
    if secret:
        check_secret(secret, "--secret-file")
    with httpx.Client(timeout=SECONDS, trust_env=False, follow_redirects=False) as client:
        yield CopyTarget(client, url, secret)


def check_target(url: str) -> None:
    """Raise `UsageError` unless this URL can be posted to."""
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and _is_plain(url)
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good:
        raise click.UsageError(
            f"--to must be a URL such as http://localhost:3000/events, not {visible(url.rpartition('@')[2])}"
        )


def _is_plain(url: str) -> bool:
    return url.isprintable() and " " not in url
