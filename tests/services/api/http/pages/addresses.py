"""Something of everything that pages can show, and an address for each page that parts bring."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from litestar.types import ASGIApp, Receive, Scope, Send

from services.api.http.pages.routes import PageRoute
from services.wiring.api import build_pages
from services.wiring.rooms import Rooms
from shared.bus.rules.deliveries import BusDeadLetter, DeathReason, DeliveryStatus, EventDelivery
from shared.bus.rules.subscriptions import EventSubscription
from shared.bus.store_cuts import DELIVERIES, delivery_codec
from shared.bus.store_deliveries import LETTERS, letter_codec
from shared.clock.rules.outcomes import DeadLetter
from shared.clock.rules.schedules import schedule_id
from shared.jobs.rules.jobs import BATCH_QUEUE
from shared.store import Store
from tests.services.api.client import Client

_PARAMETER = re.compile(r"{(\w+):str}")
_QUERIES = {
    "/find": "q=ana@example.com&app={app_id}",
    "/messages": "app={app_id}",
    "/templates": "app={app_id}",
    "/templates/{app_id:str}/named": "name=timing",
}
_SCHEDULE = {"every": 3_600, "callback": {"type": "rabbitmq", "data": {"queue": "orders", "payload": {"a": 1}}}}
_TEMPLATE = "timing"
_DAY_NS = 86_400 * 10**9

Made = Mapping[str, str]
"""A value for each parameter of pages' paths. The letters of the bus have `bus_letter_id`."""


class InnerReads:
    """Stands before the API's own routes, and counts how often pages ask them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.count += 1
        await self._app(scope, receive, send)


def page_routes(rooms: Rooms) -> list[PageRoute]:
    """All pages."""
    return [route for pages in build_pages(rooms) for route, _ in pages.page_routes()]


def address_of(route: PageRoute, made: Made) -> str:
    """Where this page is, of what was made. Raises `KeyError` where nothing of its kind was."""
    names = dict(made) | ({"letter_id": made["bus_letter_id"]} if route.path.startswith("/bus/") else {})
    values = {name: quote(value, safe="") for name, value in names.items()}
    path = _PARAMETER.sub(lambda found: values[found[1]], route.path)
    query = _QUERIES.get(route.path, "").format_map(values)
    return f"/ui{path}".rstrip("/") + (f"?{query}" if query else "")


async def make_some(
    client: Client, store: Store, namespace: str, app_id: str, csv_path: str, *, count: int, many: int
) -> dict[str, str]:
    """So many of everything, and `many` of what is listed by twenties; of each the last one's id. `namespace` is the
    client's own; the app has push tables, and the file recipients of messages."""
    made = await _make_jobs(client, app_id, csv_path, count)
    made |= await _make_schedules(client, store, namespace, count)
    made |= await _make_bus(client, store, namespace, many)
    return made | await _make_people(client, count, many)


async def _make_jobs(client: Client, app_id: str, csv_path: str, count: int) -> dict[str, str]:
    made, app = {"app_id": app_id}, f"/apps/{app_id}"
    for n in range(count):
        name = _TEMPLATE if n == count - 1 else f"{_TEMPLATE}-{n}"
        template = {"name": name, "locale": "en", "body": {"alert": "{{user}}"}, "defaults": {"user": "Ana"}}
        made["template_id"] = await _make(client, f"{app}/templates", template)
    for n in range(count):
        account = {"name": f"play-{n}", "kind": "sandbox", "testRecipient": "ana@example.com"}
        made["credential_id"] = await _make(client, f"{app}/credentials", account)
        by_account = {"credential": made["credential_id"], "csvPath": csv_path}
        await _make(client, f"{app}/jobs?template={_TEMPLATE}", by_account)
        made["job_id"] = await _make(
            client, f"{app}/jobs?template={_TEMPLATE}", {"service": "apns", "metadata": {"n": n}}
        )
        message = {"credential": made["credential_id"], "to": "ana@example.com", "body": {"text": "Hi"}}
        made["message_id"] = await _make(client, f"{app}/messages", message)
    created = (await client.get(f"{app}/jobs/{made['job_id']}")).json["createdAt"]
    everywhere = {"service": "apns", "localized": True, "startsAt": created + _DAY_NS}
    made["group_id"] = await _make(client, f"{app}/jobs?template={_TEMPLATE}", everywhere, field="jobGroupId")
    return made


async def _make_schedules(client: Client, store: Store, namespace: str, count: int) -> dict[str, str]:
    now = await store.now()
    for n in range(count):
        await client.put(f"/calendars/timing-{n}", {"dates": ["2030-12-25"]})
        await _make(client, "/schedules", _SCHEDULE | {"key": f"timing-{n}"}, field="key")
    letters = [
        DeadLetter(
            id=f"{n:032x}", death=f"{n:032x}",
            namespace=namespace, key="timing-0", schedule_id=schedule_id(namespace, "timing-0"),
            generation="g", due=now, died_at=now + timedelta(milliseconds=n), attempts=3, error=f"HTTP {500 + n % 3}",
        )
        for n in range(count)
    ]  # fmt: skip
    await store.dead_letters.add(letters)
    acts = {"act": "schedule.pause", "filter": {"namespace": namespace, "prefix": "nothing-"}, "reason": "timing"}
    action = await _make(client, "/bulk-actions", acts)
    return {"letter_id": letters[-1].id, "action_id": action, "calendar": "timing-0"}


async def _make_bus(client: Client, store: Store, namespace: str, count: int) -> dict[str, str]:
    event = {"type": "create", "url": "https://example.com/1"}
    for n in range(count):
        assert (await client.post(f"/bus/topics/timing-{n}/events", event)).status == 202
        wish = {"callback": "https://example.com/events", "topics": [f"timing-{n}"]}
        reply = await client.put(f"/bus/subscriptions/timing-{n}", wish)
        assert reply.status == 201, reply.body
    subscription = (await store.bus_subscriptions.page_of(namespace, limit=1))[0]
    now = await store.now()
    deliveries = [_delivery(subscription, n, now) for n in range(1, count + 1)]
    letters = [_letter(subscription, each) for each in deliveries]
    await store._database[DELIVERIES].insert_many([delivery_codec.document(each) for each in deliveries])
    await store._database[LETTERS].insert_many([letter_codec.document(each) for each in letters])
    made = {"topic": "timing-0", "delivery_id": deliveries[-1].id, "bus_letter_id": letters[-1].id}
    return made | {"key": subscription.key}


def _delivery(subscription: EventSubscription, number: int, now: datetime) -> EventDelivery:
    return EventDelivery(
        id=f"{subscription.id}-{number}", queue=subscription.queue, sequence=number, status=DeliveryStatus.OPEN,
        events=(b"{}",), count=1, size=2, first_at=now, cut_at=now,
    )  # fmt: skip


def _letter(subscription: EventSubscription, delivery: EventDelivery) -> BusDeadLetter:
    return BusDeadLetter(
        id=delivery.id, queue=subscription.queue, subscription=subscription.id, namespace=subscription.namespace,
        key=subscription.key, reason=DeathReason.AGE, died_at=delivery.cut_at, sequence=delivery.sequence, count=1,
        size=2, first_at=delivery.first_at, events=delivery.events,
    )  # fmt: skip


async def _make_people(client: Client, count: int, many: int) -> dict[str, str]:
    people: Iterable[str] = (f"timing{n}@example.com" for n in range(count))
    users = [await _make(client, "/users", {"email": email}) for email in people]
    for n in range(many):
        await _make(client, "/tokens", {"name": f"timing-{n}"})
    return {"user_id": users[-1], "queue": BATCH_QUEUE}


async def _make(client: Client, path: str, body: Any, field: str = "id") -> str:
    """A made thing's id. A caller may send a few single messages a second, so it waits when it is told to."""
    reply = await client.post(path, body)
    if reply.status == 429:
        await asyncio.sleep(float(reply.headers["retry-after"]))
        reply = await client.post(path, body)
    assert reply.status in {200, 201, 202}, (path, reply.body)
    return str(reply.json[field])
