"""The process that the bus has for itself: it brings events to their subscriptions, and tells notices."""

from collections.abc import Mapping, Sequence
from functools import partial

from services.fanout.fan_out import FanOut
from services.parts import Check, Part
from services.parts.bus.common import BusPart
from shared.flow.bus.flushing import LogFlusher
from shared.flow.bus.notices import INTERVAL_SECONDS, NoticeTeller
from shared.flow.bus.registry import Registry
from shared.runtime.lifecycle import Component
from shared.runtime.loops import Periodic


class BusFanOut(Part):
    """The reader of the log, and the teller of notices, which go into it."""

    def components(self, process: str) -> Sequence[Component]:
        if process != "fanout":
            return ()
        common, given = self.parts.of(BusPart), self.capabilities
        flusher = LogFlusher(self.store, Registry(self.store), common.waker.wake, given.time.now)
        verify = partial(given.stream.verify, common.stream_topics())
        teller = NoticeTeller(self.store, common.publisher, given.time, base_url=self.settings.api.public_url)
        return (
            FanOut(given.stream, self.store, flusher, common.unwoken, self.settings.bus, verify),
            Periodic("notices of the bus", teller.run_once, interval_seconds=INTERVAL_SECONDS),
        )

    def checks(self, process: str) -> Mapping[str, Check]:
        return {"stream": self.capabilities.stream.ping} if process == "fanout" else {}
