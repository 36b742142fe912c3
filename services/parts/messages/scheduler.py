"""What schedulers do for messages."""

from collections.abc import Mapping

from services.parts import Part
from services.parts.messages.common import MessagesPart
from services.scheduler.fire import OnDue
from shared.domain.messages.owners import CREDENTIAL


class MessagesScheduler(Part):
    """What of credentials waits for an instant."""

    def on_due(self) -> Mapping[str, OnDue]:
        return {CREDENTIAL: self.parts.of(MessagesPart).feed.feed_due}
