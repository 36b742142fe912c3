"""The feedback process of push: it counts feedback about records."""

from collections.abc import Sequence

from services.feedback.listener import Listener
from services.parts import Part
from shared.runtime.lifecycle import Component


class PushFeedback(Part):
    def components(self, process: str) -> Sequence[Component]:
        if process != "feedback":
            return ()
        return (Listener(self.capabilities.stream, self.store, self.settings.feedback),)
