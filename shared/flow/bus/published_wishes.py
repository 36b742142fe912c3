"""Subscriptions of Routemaster's API: the rules for their fields."""

import re
from collections.abc import Sequence
from urllib.parse import unquote

from msgspec import UNSET

from shared.domain.bus.subscriptions import LONGEST_TIMEOUT, MOST_EVENTS, PUBLISHED_KEY, EventForm
from shared.domain.bus.topics import check_published_name
from shared.domain.bus.wishes import SubscriptionWish
from shared.domain.errors import Invalid
from shared.outgoing.checks import CheckUrl

UUID_CHARACTERS = 255
LONGEST_TIMEOUT_MS = int(LONGEST_TIMEOUT.total_seconds() * 1e3)

_USER = re.compile(r"(?P<scheme>[A-Za-z]+://)(?P<user>[^/?#]*)@(?P<rest>.*)", re.DOTALL)
_UUID = re.compile(rf"[ -~]{{0,{UUID_CHARACTERS}}}")


def read_published_wish(
    namespace: str,
    *,
    topics: Sequence[str],
    callback: str,
    uuid: str | None,
    timeout_ms: int | None,
    max_events: int | None,
    check_url: CheckUrl,
    allow_http: bool,
) -> SubscriptionWish:
    """Check a client's subscription of Routemaster's API. A user in the callback replaces a missing `uuid`.
    `timeout_ms` and `max_events` were checked before; `None` leaves them unchanged."""
    for name in topics:
        check_published_name(name, field="topics")
    url, user = split_callback(callback)
    schemes = ("https://", "http://") if allow_http else ("https://",)
    if not url.lower().startswith(schemes) or "?" in url:
        rule = f"must be an https{' or http' if allow_http else ''} URL without a query"
        raise Invalid(rule, field="callback", value=url)
    check_url(url, field="callback")
    return SubscriptionWish(
        namespace=namespace,
        key=PUBLISHED_KEY,
        form=EventForm.PUBLISHED,
        callback=url,
        topics=tuple(topics),
        uuid=_check_uuid(uuid or user),
        timeout_ms=UNSET if timeout_ms is None else timeout_ms,
        max_events=UNSET if max_events is None else min(max_events, MOST_EVENTS),
    )


def split_callback(callback: str) -> tuple[str, str]:
    """Split a callback into its URL and the user in it, as `rtm sub add` sends it."""
    parts = _USER.fullmatch(callback)
    if parts is None:
        return callback, ""
    return parts["scheme"] + parts["rest"], unquote(parts["user"].partition(":")[0])


def _check_uuid(uuid: str) -> str:
    if _UUID.fullmatch(uuid) is None:
        raise Invalid(f"at most {UUID_CHARACTERS} printable characters of ASCII", field="uuid")
    return uuid
