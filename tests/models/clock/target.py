"""What stands in the place of the broker: it answers as it is told, and remembers what came out."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from shared.clock.rules.callbacks import DeliveryError, QueueMessage, Undeliverable
from shared.core.errors import Unavailable
from shared.core.instants import read_instant

_Errors = list[DeliveryError | None]


class Answer(Enum):
    """What becomes of a message."""

    CONFIRMED = "it is out"
    REFUSED = "the target refuses it"
    LOST = "no answer, and it is not out"
    UNKNOWN = "no answer, though it is out"

    @property
    def out(self) -> bool:
        """Whether the receiver has it."""
        return self in {Answer.CONFIRMED, Answer.UNKNOWN}

    @property
    def told(self) -> bool:
        """Whether the sender hears of it."""
        return self in {Answer.CONFIRMED, Answer.REFUSED}


class Sent(NamedTuple):
    """One message as it reached the target."""

    key: str
    due: datetime
    attempt: int
    id: str
    body: str
    answer: Answer


class Target:
    """The broker of one walk."""

    def __init__(
        self,
        answers: Sequence[Answer],
        step: Callable[[str, Callable[[], Awaitable[_Errors]]], Awaitable[_Errors]],
        hear: Callable[[Sent], None],
    ) -> None:
        self._answers = answers
        self._step = step
        self._hear = hear

    async def deliver(self, messages: list[QueueMessage]) -> _Errors:
        """As `Broker.deliver`."""

        async def action() -> _Errors:
            return [self._one(message, self._answers[n % len(self._answers)]) for n, message in enumerate(messages)]

        return await self._step("target.deliver", action)

    def _one(self, message: QueueMessage, answer: Answer) -> DeliveryError | None:
        told = {name: str(value) for name, value in message.headers.items()}
        due = read_instant(told["carillon-due"], field="carillon-due")
        attempt = int(told["carillon-attempt"])
        self._hear(Sent(told["carillon-key"], due, attempt, message.message_id, message.body.decode(), answer))
        match answer:
            case Answer.CONFIRMED:
                return None
            case Answer.REFUSED:
                return Undeliverable("refused")
            case Answer.LOST | Answer.UNKNOWN:
                return Unavailable("no answer")
