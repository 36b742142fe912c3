"""Mails about subscriptions, on a real mail server: one an hour, however often; a server that is away loses none."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from shared.bus.outbox import NoticeMails
from shared.bus.rules.subscriptions import EventSubscription, SubscriptionStatus
from shared.bus.upkeep import BusRetention
from shared.core.errors import Unavailable
from shared.jobs.rules.mails import Mailing
from shared.runtime.bus_settings import BusSettings
from shared.store import Store
from tests.bus.store.made_subscriptions import add, change
from tests.bus.test_retention import Later
from tests.providers.sinks import SmtpSink, smtp

pytestmark = pytest.mark.native

CONTACT = "owner@example.com"
HOUR = timedelta(hours=1, seconds=1)


@pytest.fixture
async def sink() -> AsyncIterator[SmtpSink]:
    async with smtp() as opened:
        yield opened


async def send(store: Store, sink: SmtpSink, later: timedelta = timedelta(0), blacklist: tuple[str, ...] = ()) -> int:
    chosen = Mailing(domain="example.com", blacklist=blacklist)
    lease = timedelta(seconds=30)
    return (await NoticeMails(store, sink.mail, Later(store, later), chosen, lease=lease).run_once()).claimed


async def suspend(store: Store, stands: EventSubscription, reason: str = "it is gone") -> EventSubscription:
    state = SubscriptionStatus.SUSPENDED
    moved = await change(store, stands, state=state, reason=reason, now=await store.now())
    assert moved is not None
    return moved


async def resume(store: Store, stands: EventSubscription) -> EventSubscription:
    moved = await change(store, stands, state=SubscriptionStatus.ACTIVE, reason="", now=await store.now())
    assert moved is not None
    return moved


async def test_a_contact_is_told_what_is_wrong_and_what_to_do_once_an_hour(store: Store, sink: SmtpSink) -> None:
    callback = "https://user@receiver.example/secret-path"
    stands = await suspend(store, await add(store, "orders", "a", contact=CONTACT, callback=callback))
    assert await send(store, sink) == 1
    stands = await suspend(store, await resume(store, stands))
    assert await send(store, sink) == 0
    (mail,) = sink.mailed
    assert (mail.envelope, mail.subject) == ((CONTACT,), "Subscription suspended")
    for words in ("orders", "it is gone", "receiver.example", "carillon subscriptions resume orders", "Since:"):
        assert words in mail.text
    assert "secret-path" not in mail.text
    assert await send(store, sink, HOUR) == 0, "the mark goes"
    await suspend(store, await resume(store, stands), "gone again")
    assert await send(store, sink) == 1
    assert "gone again" in sink.mailed[1].text
    assert sink.mailed[0].id != sink.mailed[1].id


async def test_who_is_blacklisted_or_has_no_contact_gets_none(store: Store, sink: SmtpSink) -> None:
    await suspend(store, await add(store, "silent", "a"))
    await suspend(store, await add(store, "unwanted", "a", contact=CONTACT))
    assert await send(store, sink, blacklist=("owner@",)) == 2
    assert sink.mailed == []


async def test_a_server_that_is_away_is_tried_again_for_a_day(store: Store, sink: SmtpSink) -> None:
    await suspend(store, await add(store, "orders", "a", contact=CONTACT))
    sink.fail(451)
    with pytest.raises(Unavailable):
        await send(store, sink)
    assert await send(store, sink) == 0, "not so soon"
    sink.replies.clear()
    assert await send(store, sink, timedelta(seconds=10)) == 1
    assert len(sink.mailed) == 1
    await suspend(store, await add(store, "late", "a", contact=CONTACT))
    sink.fail(451)
    assert await send(store, sink, timedelta(days=1, minutes=1)) == 1, "it is given up"
    assert len(sink.mailed) == 1


async def test_mails_that_nobody_sends_are_forgotten_and_notices_are_not(store: Store) -> None:
    await suspend(store, await add(store, "orders", "a", contact=CONTACT))
    left = store._database["bus_notices"]
    for days, ways in ((1, {"event", "mail"}), (2, {"event"})):
        await BusRetention(store, Later(store, timedelta(days=days)), BusSettings()).run_once()
        assert set(await left.distinct("way")) == ways
