"""The fan-out: it brings events to their subscriptions, and publishes Carillon's own events."""

from collections.abc import Mapping, Sequence
from functools import partial

from services.fanout.fan_out import FanOut
from services.parts import Check, Part
from services.parts.bus.common import BusPart
from shared.flow.bus.flushing import LogFlusher
from shared.flow.bus.outbox import NOTICE_SECONDS, OUTBOX_SECONDS, NoticeTeller, OutboxPublisher
from shared.flow.bus.topics import Registry
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class BusFanOut(Part):
    def components(self, process: str) -> Sequence[Component]:
        if process != "fanout":
            return ()
        common, given = self.parts.of(BusPart), self.capabilities
        flusher = LogFlusher(self.store, Registry(self.store), common.waker.wake, given.time.now)
        verify = partial(given.stream.verify, common.stream_topics())
        base_url = self.settings.api.public_url
        notices = NoticeTeller(self.store, common.publisher, given.time, base_url=base_url)
        events = OutboxPublisher(self.store, common.publisher, given.time, base_url=base_url)
        return (
            FanOut(given.stream, self.store, flusher, common.unwoken, self.settings.bus, verify),
            Periodic("notices of the bus", notices.run_once, interval_seconds=NOTICE_SECONDS),
            Periodic("outbox", events.run_once, interval_seconds=OUTBOX_SECONDS),
        )

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"stream": self.capabilities.stream.ping} if process == "fanout" else {}

    def side_checks(self, process: str) -> Mapping[str, Check]:
        return {"broker": self.capabilities.broker.ping} if process == "fanout" else {}
