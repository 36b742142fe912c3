"""`client.bus_subscriptions`: who gets which events of the bus, where and in what portions."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from carillon.attempts import query_of
from carillon.bus import BusAttempt
from carillon.calls import PAGE_SIZE, M, Resource, call, listing
from carillon.values import encode, written
from carillon.wire import Short


class EventCondition(Struct, frozen=True):
    """A condition on the place in an event's `data` that the JSON pointer `path` names; `value` is any JSON."""

    path: str
    op: Literal["eq", "ne", "in", "exists", "lt", "gt"]
    value: Any = True


class EventFilter(Struct, frozen=True):
    """Which events are wanted. All that is given must hold; an empty part wants all."""

    types: Sequence[str] = ()
    url_prefix: str = ""
    data: Sequence[EventCondition] = ()


class BusSubscription(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields of a subscription to be made or changed. A field that is `UNSET` stays as it is. In a new subscription
    it takes its default, but `callback` is needed."""

    callback: str | UnsetType = UNSET
    topics: Sequence[str] | UnsetType = UNSET
    filter: EventFilter | UnsetType = UNSET
    max_events: int | UnsetType = UNSET
    max_bytes: int | UnsetType = UNSET
    timeout_ms: int | UnsetType = UNSET
    ordered: bool | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    max_age_hours: int | UnsetType = UNSET
    headers: Mapping[str, str] | UnsetType = UNSET
    uuid: str | UnsetType = UNSET
    contact: str | UnsetType = UNSET

    def __repr__(self) -> str:
        """Without headers and uuid, which may be credentials: this ends in logs."""
        return f"BusSubscription(callback={self.callback!r}, topics={self.topics!r})"


class StoredBusSubscription(Short, frozen=True, kw_only=True):
    """A subscription. `secret` is shown when it is new, and `""` ever after. `state` is `active`, `paused` or
    `suspended`, and `reason` says why. `redacted`: the caller is a viewer, who sees no values of `headers`, no path
    of `callback`, no `uuid` and no `contact`. `id` names it in metrics. `failing_since`, if it
    is read and not changed, is when the receiver's calls began to fail; `None` if the last one succeeded."""

    key: str
    callback: str
    topics: tuple[str, ...]
    filter: EventFilter
    max_events: int
    max_bytes: int
    timeout_ms: int
    ordered: bool
    in_flight: int
    max_attempts: int
    max_age_hours: int
    headers: Mapping[str, str]
    uuid: str
    contact: str
    state: str
    reason: str
    created_at: datetime
    updated_at: datetime
    secret: str = ""
    redacted: bool = False
    id: str = ""
    failing_since: datetime | None = None

    def __repr__(self) -> str:
        """Without what may be a credential: this ends in logs."""
        return f"StoredBusSubscription(key={self.key!r}, state={self.state!r})"


class BusHealth(Short, frozen=True, kw_only=True):
    """The health of a subscription's receiver. It accepted `accepted_calls` of its `last_calls`, 20 at most;
    `accepted_percent` is their share. `points`, from 0 to 100, and the `failures` in a row say how long Carillon waits
    between two calls; the next one is not before `next_probe_at`.

    The following fields count events: `queued` wait, the first of them since `oldest_at`; `sent` were taken; `dead` are
    dead letters that were not retried; `lost` came into no delivery. `in_flight` deliveries are made and not
    settled."""

    key: str
    state: str
    reason: str
    points: int
    failures: int
    failing_since: datetime | None
    last_attempt_at: datetime | None
    next_probe_at: datetime | None
    queued: int
    oldest_at: datetime | None
    sent: int
    dead: int
    lost: int
    in_flight: int
    accepted_percent: int = 100
    accepted_calls: int = 0
    last_calls: int = 0


class BusReplay(Short, frozen=True, kw_only=True):
    """A replay. `state` is `running`, `held` (`reason` says why), `waiting` for its subscription to be resumed, or
    over: `done`, `cancelled` or `failed`. `total` counts the records of the log, of all topics, and `read` those that
    the replay has read. `events` counts the events that it brought, `lost` those that the log had no more.
    `begins_late`: the log does not reach back to where it was to begin. One that began by itself, or by the retry of a
    dead letter, has no `since`."""

    number: int
    state: str
    reason: str
    since: datetime | None = msgspec.field(name="from")
    until: datetime | None = msgspec.field(name="to")
    topics: tuple[str, ...]
    filter: EventFilter | None
    total: int
    read: int
    events: int
    lost: int
    begins_late: bool
    created_at: datetime
    ended_at: datetime | None


# Numbers that no float holds are JSON all the same: they read as infinite.


class BusSubscriptions(Resource[M]):
    """The caller's own subscriptions of the bus. All methods raise `CarillonError`, and `ValueError` for a key that
    cannot be one. A caller with a role over another `namespace` names it to see and move the subscriptions there."""

    @call
    async def put(self, key: str, subscription: BusSubscription, *, reason: str = "") -> StoredBusSubscription:
        """Make a subscription, or change it. The answer of an attempt that was lost may have shown the secret of a new
        one: `rotate_secret` gives another. Raises `Invalid`."""
        content = encode(subscription)
        return await self._put(StoredBusSubscription, "bus", "subscriptions", key, content=content, reason=reason)

    @call
    async def get(self, key: str, *, namespace: str = "") -> StoredBusSubscription:
        """A subscription. Raises `NotFound`."""
        return await self._get(StoredBusSubscription, "bus", "subscriptions", key, query=query_of(namespace=namespace))

    @listing
    def list(
        self, *, namespace: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[StoredBusSubscription]:
        """All subscriptions by key; read page by page."""
        query = query_of(namespace=namespace)
        return self._list(
            list[StoredBusSubscription], "bus", "subscriptions", query=query, limit=limit, page_size=page_size
        )

    @call
    async def health(self, key: str, *, namespace: str = "") -> BusHealth:
        """The health of a subscription's receiver, and its backlog. Raises `NotFound`."""
        return await self._get(BusHealth, "bus", "subscriptions", key, "health", query=query_of(namespace=namespace))

    @call
    async def test(self, key: str, *, namespace: str = "", reason: str = "") -> BusAttempt:
        """Send one made-up event to a subscription's receiver now, and tell what came of it, also where that was no
        success. It is not sent again once it may have been. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        return await self._post(BusAttempt, "bus", "subscriptions", key, "test", query=query, reason=reason, once=True)

    @call
    async def pause(self, key: str, *, namespace: str = "", reason: str = "") -> StoredBusSubscription:
        """Have nothing delivered; what comes is collected. Raises `NotFound`, `Conflict` if it is suspended."""
        return await self._move(key, "pause", namespace, reason)

    @call
    async def resume(self, key: str, *, namespace: str = "", reason: str = "") -> StoredBusSubscription:
        """Have what waits delivered. Raises `NotFound`."""
        return await self._move(key, "resume", namespace, reason)

    @call
    async def rotate_secret(
        self, key: str, *, keep_hours: int = 24, namespace: str = "", reason: str = ""
    ) -> StoredBusSubscription:
        """Give a subscription a new secret; the one before it signs beside it for so long. Raises `NotFound`."""
        content = encode({"keep_hours": keep_hours})
        return await self._move(key, "secrets", namespace, reason, content)

    @call
    async def replay(
        self,
        key: str,
        *,
        since: datetime,
        until: datetime | None = None,
        topics: Sequence[str] = (),
        event_filter: EventFilter | None = None,
        namespace: str = "",
        reason: str = "",
    ) -> BusReplay:
        """Have the events that arrived from `since` to before `until`, or until now, delivered again. Without topics
        and a filter those of the subscription hold. Raises `NotFound`, `Invalid`, and `Conflict` while another replay
        is not over."""
        body: dict[str, Any] = {"from": written(since, "since")}
        body |= {} if until is None else {"to": written(until, "until")}
        body |= {"topics": list(topics)} if topics else {}
        body |= {} if event_filter is None else {"filter": event_filter}
        query = query_of(namespace=namespace)
        content = encode(body)
        return await self._post(
            BusReplay, "bus", "subscriptions", key, "replays", query=query, content=content, reason=reason, once=True
        )

    @listing
    def replays(
        self, key: str, *, namespace: str = "", limit: int | None = None, page_size: int = PAGE_SIZE
    ) -> AsyncGenerator[BusReplay]:
        """The replays of a subscription, the last first; read page by page. Raises `NotFound`."""
        query = query_of(namespace=namespace)
        return self._list(
            list[BusReplay], "bus", "subscriptions", key, "replays", query=query, limit=limit, page_size=page_size
        )

    @call
    async def cancel_replays(self, key: str, *, namespace: str = "", reason: str = "") -> None:
        """Cancel the replays of a subscription; what they have brought stays. Raises `NotFound` where there is none."""
        await self._delete("bus", "subscriptions", key, "replays", query=query_of(namespace=namespace), reason=reason)

    @call
    async def delete(self, key: str, *, namespace: str = "", reason: str = "") -> None:
        """Remove a subscription, with all that waits for it. Raises `NotFound`."""
        await self._delete("bus", "subscriptions", key, query=query_of(namespace=namespace), reason=reason)

    async def _move(
        self, key: str, move: str, namespace: str, reason: str, content: bytes = b""
    ) -> StoredBusSubscription:
        query = query_of(namespace=namespace)
        return await self._post(
            StoredBusSubscription, "bus", "subscriptions", key, move, query=query, content=content, reason=reason
        )
