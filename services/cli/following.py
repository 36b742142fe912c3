"""Following the deliveries of a subscription from look to look, through outages of the API."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from http import HTTPStatus
from typing import TypeVar

from msgspec import Struct

from carillon.bus_deliveries import WholeBusDelivery
from carillon.errors import CarillonError, NotFound, Unavailable
from services.cli.session import Session
from services.cli.watching import PERIOD_SECONDS

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
