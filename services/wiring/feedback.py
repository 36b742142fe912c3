"""The readers of the stream: feedback counts answers about pushes, the fan-out brings events to subscriptions."""

from functools import partial

from services.wiring.rooms import Rooms
from shared.bus.flushing import LogFlusher
from shared.bus.outbox import NOTICE_SECONDS, OUTBOX_SECONDS, NoticeTeller, OutboxPublisher
from shared.bus.topics import Registry
from shared.runtime.lifecycle import Closing, Component
from shared.runtime.loops import Periodic


def answers_components(rooms: Rooms) -> list[Component]:
    from services.feedback.listener import Listener

    servers = rooms.servers
    return [Listener(servers.stream, servers.store, servers.settings.feedback)]


def bus_components(rooms: Rooms) -> list[Component]:
    """The reader of the log, and the publishers of notices and of Carillon's own events to it."""
    from services.feedback.fan_out import FanOut

    servers, bus = rooms.servers, rooms.bus
    store, stream, time = servers.store, servers.stream, servers.time
    flusher = LogFlusher(store, Registry(store), bus.waker.wake, time.now)
    verify = partial(stream.verify, bus.stream_topics)
    base_url = servers.settings.api.public_url
    notices = NoticeTeller(store, bus.publisher, time, base_url=base_url)
    events = OutboxPublisher(store, bus.publisher, time, base_url=base_url)
    return [
        Closing("wake-ups due soon", bus.waker.close),
        FanOut(stream, store, flusher, bus.unwoken, servers.settings.bus, verify),
        Periodic("notices of the bus", notices.run_once, interval_seconds=NOTICE_SECONDS),
        Periodic("outbox", events.run_once, interval_seconds=OUTBOX_SECONDS),
    ]
