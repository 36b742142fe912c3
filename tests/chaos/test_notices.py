"""If a process dies as it tells a notice or another event of Carillon's own, another one tells it, with the same id."""

import secrets
import signal

import pytest

from shared.bus.rules.events import NOTICES, BusEvent, read_event
from shared.bus.rules.subscriptions import SubscriptionStatus
from shared.core.documents import JOBS_TOPIC
from tests.bus.store.made_subscriptions import add, change
from tests.bus.test_outbox import add_owner, end
from tests.e2e.house import House
from tests.providers.sinks import smtp
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.native]


async def read_events(house: House, topic: str, count: int) -> list[BusEvent]:
    """So many events of the log."""
    found, log = list[BusEvent](), house.servers.settings.bus.log_topic
    async with house.servers.stream.reader(log, group=secrets.token_hex(5)) as reader:

        async def are_read() -> bool:
            events = [read_event(value) for chunk in await reader.read(1.0) for value in chunk.values if value]
            found.extend(event for event in events if event is not None and event.topic == topic)
            return len(found) >= count

        await until(are_read, f"{count} events on {topic}")
    return found


async def test_a_fan_out_that_dies_before_it_notes_that_it_told_leaves_the_notice_to_another(house: House) -> None:
    store = house.servers.store
    doomed = await house.start("feedback-bus", fault="notices.after_publish=kill")
    stands = await add(store, "k", "a")
    assert await change(store, stands, state=SubscriptionStatus.SUSPENDED, reason="it is gone", now=await store.now())
    assert await doomed.gone() == -signal.SIGKILL
    notice = await store.bus_notices.find_oldest()
    assert notice is not None
    # Rather than wait until the dead one's turn is over.
    await store.bus_notices.put_off(notice, await store.now())
    await house.start("feedback-bus")

    async def is_told() -> bool:
        return await store.bus_notices.find_oldest() is None

    await until(is_told, "the notice to be told")
    events = await read_events(house, NOTICES, 2)
    assert [(event.id, event.audience) for event in events] == [(notice.id, stands.namespace)] * 2


@pytest.mark.proof
async def test_another_fan_out_publishes_the_events_of_a_dead_one(house: House) -> None:
    store = house.servers.store
    await add_owner(store)
    doomed = await house.start("feedback-bus", fault="outbox.after_publish=kill")
    await end(store)
    assert await doomed.gone() == -signal.SIGKILL
    # Rather than wait until the dead one's turn is over.
    await store._database["outbox"].update_many({}, {"$unset": {"taken_until": ""}})
    await house.start("feedback-bus")

    async def is_told() -> bool:
        return await store.outbox.find_oldest() is None

    await until(is_told, "the event to be published")
    first, second = await read_events(house, JOBS_TOPIC, 2)
    assert (first.id, first.data, first.audience) == (second.id, second.data, "token:owner")


async def test_a_worker_that_dies_before_it_notes_that_it_mailed_leaves_the_mail_to_another(house: House) -> None:
    store = house.servers.store
    stands = await add(store, "orders", "a", contact="owner@example.com")
    assert await change(store, stands, state=SubscriptionStatus.SUSPENDED, reason="it is gone", now=await store.now())
    async with smtp(options="?tls=never") as sink:
        by_mail = {"CARILLON_MAIL_URL": sink.url, "CARILLON_MAIL_TIMEOUT_SECONDS": "20"}
        doomed = await house.spawn("worker", fault="mail.after_send=kill", **by_mail)
        assert await doomed.gone() == -signal.SIGKILL
        assert len(sink.mailed) == 1
        mails = store._database["bus_notices"]
        # Rather than wait until the dead one's turn is over.
        await mails.update_one({"way": "mail", "is_told": False}, {"$set": {"due_at": await store.now()}})
        await house.start("worker", **by_mail)

        async def is_mailed() -> bool:
            return await mails.count_documents({"way": "mail", "is_told": True}) == 1

        await until(is_mailed, "the mail to be noted")
        first, second = sink.mailed
    assert first.id == second.id
    assert (second.envelope, second.subject) == (("owner@example.com",), "Subscription suspended")
