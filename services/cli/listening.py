"""Deliveries of the bus as they are made, copied to a program on this machine."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import click
import httpx
from msgspec import Struct

from carillon.bus import WholeBusDelivery
from carillon.errors import CarillonError, NotFound, Unavailable
from services.cli.output import visible
from services.cli.session import Session
from services.cli.watching import PERIOD_SECONDS
from shared.drivers.http.signing import check_secret, webhook_headers

T = TypeVar("T")


class FoundDelivery(Struct, frozen=True):
    """A found delivery. The next look continues from its sequence."""

    id: str
    sequence: int
    cut_at: datetime


class DeliveryFollower:
    """Finds the deliveries of a subscription in order, each once. `since` is a sequence or an instant, as in the API;
    without it, existing ones are skipped."""

    def __init__(self, session: Session, key: str, namespace: str, since: str = "") -> None:
        self._session = session
        self._path = ("bus", "subscriptions", key, "deliveries")
        self._namespace = namespace
        self._since = since
        self._last: FoundDelivery | None = None

    def begin(self) -> None:
        """Find where to begin. This is tried once, so that a mistyped address shows at once."""
        newest = self._find_newest()
        if not self._since:
            self._since, self._last = "0" if newest is None else str(newest.sequence), newest

    def find_new(self) -> list[FoundDelivery]:
        """New deliveries, oldest first. They are found again until `pass_by` has seen them."""
        newest = self._ask(self._find_newest)
        if newest is None or (self._last and newest.id == self._last.id):
            return []
        if self._last and _follows_anew(newest, self._last):
            self._session.out.tell("The subscription was removed and made anew: its deliveries begin with 1 again.")
            self._since, self._last = "0", None
        # The list has the newest first, and may be long: only this much of each is kept.
        return self._ask(lambda: [*self._list(since=self._since, limit=0)])[::-1]

    def pass_by(self, found: FoundDelivery) -> None:
        self._since, self._last = str(found.sequence), found

    def read(self, found: FoundDelivery) -> WholeBusDelivery | str:
        """A delivery with its events, or the reason why they are gone."""
        try:
            return self._ask(lambda: self._session.api.bus_deliveries.get(
                found.id, events=True, namespace=self._namespace
            ))  # fmt: skip
        except NotFound as gone:
            return gone.reason

    def _find_newest(self) -> FoundDelivery | None:
        return next(self._list(limit=1), None)

    def _list(self, *, limit: int, since: str = "") -> Iterator[FoundDelivery]:
        listed = self._session.api.items(*self._path, limit=limit, since=since, namespace=self._namespace)
        return (FoundDelivery(each["id"], each["sequence"], datetime.fromisoformat(each["cut_at"])) for each in listed)

    def _ask(self, question: Callable[[], T]) -> T:
        is_away = False
        while True:
            try:
                answer = question()
            except CarillonError as error:
                if not isinstance(error, Unavailable) and (error.status or 0) < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise
                if not is_away:
                    self._session.out.tell(f"The API is away: {error}. It is asked again until it answers.")
                is_away = True
                time.sleep(PERIOD_SECONDS)
            else:
                if is_away:
                    self._session.out.tell("The API answers again.")
                return answer


def _follows_anew(newest: FoundDelivery, last: FoundDelivery) -> bool:
    """Whether the count has begun anew since the last one. The newest may also be an old one that is still open, if all
    later ones are removed."""
    return newest.sequence <= last.sequence and newest.cut_at > last.cut_at


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
    check_target(url)
    if secret:
        check_secret(secret, "--secret-file")
    with httpx.Client(timeout=SECONDS, trust_env=False, follow_redirects=False) as client:
        yield CopyTarget(client, url, secret)


def check_target(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        good = good and url.isprintable() and " " not in url
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        good = False
    if not good:
        raise click.UsageError(
            f"--to must be a URL such as http://localhost:3000/events, not {visible(url.rpartition('@')[2])}"
        )
